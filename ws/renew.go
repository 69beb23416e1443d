package ws

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// renewOptions tune a renewer.
type renewOptions struct {
	Server             string       // what texts call the server
	NoRenew            bool         // do not connect again after a loss; see ClientOptions
	NotifyAfterRenewal bool         // tell the client after a renewal that everything may have changed; see ClientOptions
	SignsIn            bool         // a person may sign in while a request of the client waits for a connection
	Logger             hclog.Logger // told what happens to the connection; not nil
}

// renewer is the Conn that Client.Dial returns: a session with a server over
// one connection after the other. It knows nothing of WebSockets. One goroutine,
// the reconnector's, makes the connections; it runs from the first request on for as long as
// there is, or should be, a connection. The goroutine that brings a message over a
// connection hands it on.
type renewer struct {
	remoteconn.Base
	dial     func(ctx context.Context) (bridge.Conn, error) // makes a connection; faultOf explains its errors
	onClosed func()                                         // called once, at the end of Close
	opts     renewOptions                                   // the options that newRenewer was called with

	// the client's requests that wait for a response, and what a new session has to be told; its lock guards state,
	// too
	ledger      remoteconn.Ledger[*call, *link]
	state       renewState  // what changes; guarded by the lock of ledger
	reconnector reconnector // makes the connections of the renewer
}

// newRenewer makes a renewer with these options, which connects when the first request is sent. dial makes a connection; onClosed is called at the end
// of Close.
func newRenewer(dial func(ctx context.Context) (bridge.Conn, error), onClosed func(), opts renewOptions) *renewer {
	r := &renewer{dial: dial, onClosed: onClosed, opts: opts}
	r.reconnector = reconnector{r: r, retryNow: make(chan struct{}, 1)}
	r.Init()
	return r
}

// TrySend implements bridge.Conn. It sends only while there is a connection, and only requests and notifications about
// which nothing else has to be done.
func (r *renewer) TrySend(m jsonrpc.Message) bool {
	l, call := r.admitNow(m)
	switch {
	case l == nil:
		return false
	case l.conn.TrySend(m):
		return true
	case call != nil && !r.ledger.ClaimCall(call):
		return true // the connection was lost, and the reconnector has answered
	}
	return false
}

// Send implements bridge.Conn. It waits while a connection is being made, but
// for no more than one attempt that fails.
func (r *renewer) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	if r.opts.SignsIn {
		ctx = r.WithProgress(ctx, m, false)
	}
	for {
		if err := r.Err(ctx); err != nil {
			return err
		}
		decision := r.admit(ctx, m)
		switch {
		case decision.waitFor != nil:
			if err := r.Wait(ctx, decision.waitFor.done); err != nil {
				return err
			}
			if f := decision.waitFor.fault; f != nil {
				return r.refuse(ctx, m, f)
			}
		case decision.link != nil:
			return r.sendOver(ctx, decision)
		case decision.answerWith != nil:
			return r.refuse(ctx, m, decision.answerWith)
		case decision.dropReason != "":
			r.opts.Logger.Debug("message dropped: "+decision.dropReason, "method", m.Method())
			return nil
		default:
			return decision.err
		}
	}
}

// refuse is called for a message for which there is no connection: a request is answered with f, any other message is
// dropped.
func (r *renewer) refuse(ctx context.Context, m jsonrpc.Message, f *httpdial.Fault) error {
	if m.Kind() != jsonrpc.Request {
		r.opts.Logger.Debug("message dropped: there is no connection", "method", m.Method())
		return nil
	}
	r.opts.Logger.Debug("request refused", "method", m.Method(), "reason", f.Reason)
	return r.QueueErrorResponse(ctx, f.Response(m.ID()))
}

// sendOver sends a message over the connection that admit has chosen. If the connection is lost meanwhile, it returns
// nil: the reconnector answers the request, which is in the ledger.
func (r *renewer) sendOver(ctx context.Context, decision sendDecision) error {
	err := decision.link.conn.Send(ctx, decision.msg)
	switch {
	case err == nil:
		return nil
	case r.Context().Err() != nil:
		return r.Err(ctx)
	case ctx.Err() != nil:
		if decision.call != nil {
			r.ledger.ClaimCall(decision.call) // it was not sent
		}
		return ctx.Err()
	case decision.msg.Kind() != jsonrpc.Request:
		r.opts.Logger.Debug("message dropped: the connection was lost", "method", decision.msg.Method())
	}
	return nil
}

// Close implements bridge.Conn. What was sent is still delivered; requests in progress get no answer.
func (r *renewer) Close(error) error {
	r.Shutdown(r.onClosed)
	return nil
}

// faultOf returns the *httpdial.Fault that is in err, as renewer.dial and the Conns that it makes return one. Of
// another err it makes a Fault that says that the connection to where, the server's name, has ended.
func faultOf(err error, where string) *httpdial.Fault {
	var f *httpdial.Fault
	if errors.As(err, &f) {
		return f
	}
	return &httpdial.Fault{Reason: httpdial.ReasonConnectionLost, Transient: true, Text: "the connection to " + where + " has ended: " + err.Error()}
}
