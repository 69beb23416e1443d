package ws

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// relayFromServer hands on the early messages of a connection, and then all that comes, until
// the connection is lost. It returns how it was lost.
func (r *renewer) relayFromServer(l *link, early []jsonrpc.Message) *httpdial.Fault {
	conn := bridge.Intercept(l.conn, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) { return r.handleServerMessage(l, m) }})
	for _, m := range early {
		if reply := r.handleServerMessage(l, &m); reply != nil {
			_ = l.conn.Send(r.Context(), *reply) // if it is lost, so is who asked
		} else {
			_ = r.Deliver(r.Context(), m)
		}
	}
	return faultOf(conn.Receive(r.Context(), r.DeliverSink()), r.opts.Server)
}

// handleServerMessage notes a message of the server in the ledger, and replaces *m by the message that the
// client gets. reply is not nil if the server gets an answer instead: *m is then zero.
func (r *renewer) handleServerMessage(l *link, m *jsonrpc.Message) (reply *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response {
		r.noteAnswered(*m)
	}
	in, ok := r.ledger.NoteServerMessage(l, *m)
	if !ok {
		no := jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, "too many requests wait for the client's answers", nil)
		in, reply = jsonrpc.Message{}, &no
	}
	*m = in
	return reply
}

// sessionRenewal tells a new connection what the client has told the old one (LE5). It is a
// remoteconn.ReplacementSession.
type sessionRenewal struct {
	r           *renewer
	conn        bridge.Conn
	brokenFault *httpdial.Fault   // why the connection cannot be used any more; nil: it can
	early       []jsonrpc.Message // what the server has sent meanwhile for the client
	changed     []jsonrpc.Message // what the client is told of the new session, with NotifyAfterRenewal
}

// run renews the session. nil: the connection can be used.
func (p *sessionRenewal) run() *httpdial.Fault {
	f := p.r.ledger.RenewSession(p.r.Context(), p, remoteconn.RenewalOptions{Server: p.r.opts.Server, InitializeTimeout: renewInitializeTimeout, Log: p.r.opts.Logger})
	if f == nil {
		f = p.brokenFault
	}
	return f
}

// OnInitialized implements remoteconn.ReplacementSession.
func (p *sessionRenewal) OnInitialized(_ jsonrpc.Message, changed []jsonrpc.Message) {
	if p.r.opts.NotifyAfterRenewal {
		p.changed = changed
	}
}

// SendNotification implements remoteconn.ReplacementSession.
func (p *sessionRenewal) SendNotification(ctx context.Context, m jsonrpc.Message) *httpdial.Fault {
	if err := p.conn.Send(ctx, m); err != nil {
		return p.fault(ctx, err)
	}
	return nil
}

// SendRequest implements remoteconn.ReplacementSession. Pings are answered meanwhile, all else waits for
// the client.
func (p *sessionRenewal) SendRequest(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, *httpdial.Fault) {
	if p.brokenFault != nil {
		return jsonrpc.Message{}, p.brokenFault
	}
	if err := p.conn.Send(ctx, m); err != nil {
		return jsonrpc.Message{}, p.fault(ctx, err)
	}
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	a := &answerSink{sessionRenewal: p, id: m.ID(), stop: stop}
	if err := p.conn.Receive(receiving, a); a.msg.Kind() == jsonrpc.Invalid {
		return jsonrpc.Message{}, p.fault(ctx, err)
	}
	return a.msg, nil
}

// fault returns the Fault for err, the error of a Send or Receive with ctx. If ctx is not
// done, the connection cannot be used any more.
func (p *sessionRenewal) fault(ctx context.Context, err error) *httpdial.Fault {
	if ctx.Err() == nil {
		p.brokenFault = faultOf(err, p.r.opts.Server)
		return p.brokenFault
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &httpdial.Fault{Reason: httpdial.ReasonTimeout, Transient: true, Text: p.r.opts.Server + " did not answer initialize in time"}
	}
	return faultOf(err, p.r.opts.Server)
}

// answerSink is the Sink of a SendRequest: it takes messages up to the response.
type answerSink struct {
	*sessionRenewal
	id   jsonrpc.ID
	stop context.CancelFunc // ends the Receive
	msg  jsonrpc.Message    // the response; zero: it has not come
}

// errAnswered refuses what comes after the response: the next Receive gets it.
var errAnswered = errors.New("ws: the answer has come")

// TrySend implements bridge.Sink.
func (a *answerSink) TrySend(m jsonrpc.Message) bool {
	switch {
	case a.msg.Kind() != jsonrpc.Invalid:
		return false // it is for the next Receive
	case m.Kind() == jsonrpc.Response && m.ID() == a.id:
		a.msg = m
		a.stop()
	case m.Kind() == jsonrpc.Request && m.Method() == "ping":
		return a.conn.TrySend(jsonrpc.NewResult(m.ID(), nil))
	case len(a.early) < maxEarlyMessages:
		a.early = append(a.early, m)
	default:
		a.r.opts.Logger.Warn("message dropped: the server has sent too much before it has initialized", "method", m.Method())
	}
	return true
}

// Send implements bridge.Sink.
func (a *answerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case a.msg.Kind() != jsonrpc.Invalid:
		return errAnswered
	case m.Kind() == jsonrpc.Request && m.Method() == "ping":
		return a.conn.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
	}
	a.TrySend(m)
	return nil
}
