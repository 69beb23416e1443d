package ws

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// relayFromServer hands the client the early messages of the connection l, and then all that comes over it, until it
// is lost. It returns how it was lost.
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

// handleServerMessage notes a message that has come over l in the ledger, and replaces *m by what the client gets.
// reply is not nil if the server gets an answer instead: *m is then zero.
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

// sessionRenewal begins the client's session anew on a new connection: it tells the server what the client has told it
// over the old one (LE5). It is a remoteconn.ReplacementSession.
type sessionRenewal struct {
	r           *renewer          // the renewer whose session is renewed
	conn        bridge.Conn       // the new connection
	brokenFault *httpdial.Fault   // why the connection cannot be used any more; nil: it can
	early       []jsonrpc.Message // what the server has sent for the client meanwhile: maxEarlyMessages at most
	changed     []jsonrpc.Message // notifications that everything may have changed, for the client; only with NotifyAfterRenewal
}

// run renews the session. It returns nil if the connection can be used then.
func (p *sessionRenewal) run() *httpdial.Fault {
	f := p.r.ledger.RenewSession(p.r.Context(), p, remoteconn.RenewalOptions{Server: p.r.opts.Server, InitializeTimeout: renewInitializeTimeout, Log: p.r.opts.Logger})
	if f == nil {
		f = p.brokenFault
	}
	return f
}

// OnInitialized implements remoteconn.ReplacementSession: it keeps changed for the client, if the client is to get
// that.
func (p *sessionRenewal) OnInitialized(_ jsonrpc.Message, changed []jsonrpc.Message) {
	if p.r.opts.NotifyAfterRenewal {
		p.changed = changed
	}
}

// SendNotification implements remoteconn.ReplacementSession: it sends m over the new connection.
func (p *sessionRenewal) SendNotification(ctx context.Context, m jsonrpc.Message) *httpdial.Fault {
	if err := p.conn.Send(ctx, m); err != nil {
		return p.fault(ctx, err)
	}
	return nil
}

// SendRequest implements remoteconn.ReplacementSession: it sends the request m over the new connection and returns the
// response. Pings of the server are answered meanwhile. Of all else the first maxEarlyMessages are kept in early for the
// client, and the rest is dropped.
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

// fault returns the Fault for err, the error of a Send or Receive over the new connection with ctx. Unless ctx is
// done, it also notes that the connection cannot be used any more.
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
	id   jsonrpc.ID         // the id of the request whose response is waited for
	stop context.CancelFunc // ends the Receive that the Sink is for
	msg  jsonrpc.Message    // the response; zero: it has not come yet
}

// errAnswered is with what an answerSink refuses a message that comes after the response: the next Receive gets it.
var errAnswered = errors.New("ws: the answer has come")

// TrySend implements bridge.Sink: it takes the response and what comes before, but a ping only if that can be answered at
// once. Of other messages it keeps maxEarlyMessages, and drops more. What comes after the response is left to the next Receive.
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

// Send implements bridge.Sink, as TrySend does; after the response it returns errAnswered.
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
