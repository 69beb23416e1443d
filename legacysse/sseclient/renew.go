package sseclient

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// renew initializes the new session s in the client's place, and tells it what the old one knew (SS7).
// A fault means that s cannot be used. An initialize of the client that comes meanwhile ends s.
func (k *reconnector) renew(s *session) *httpdial.Fault {
	k.setRenewing(s)
	defer k.setRenewing(nil)
	timeout := initializeTimeout
	if !httpdial.IsUnattended(s.ctx) {
		timeout = httpdial.TimeoutWithSignIn(timeout, k.c.opts.AuthorizeTimeout)
	}
	fault := k.c.ledger.RenewSession(s.ctx, &renewedSession{k.c, s}, remoteconn.RenewalOptions{
		Server: k.c.target.Peer.String(), InitializeTimeout: timeout, Log: k.c.log,
	})
	if fault != nil && fault.Reason == httpdial.ReasonInitializeRefused {
		fault.ServerError = jsonrpc.Message{} // what the server has said to the bridge is no answer to the client
	}
	return fault
}

// setRenewing sets state.renewing.
func (k *reconnector) setRenewing(s *session) {
	k.c.ledger.Lock()
	defer k.c.ledger.Unlock()
	k.c.state.renewing = s
}

// notifyRenewed tells that the session was renewed: s is the new one. With NotifyAfterRenewal the client gets
// notifications that everything may have changed; Options.OnRenewed is called.
func (k *reconnector) notifyRenewed(s *session) {
	c := k.c
	c.ledger.Lock()
	c.state.refusedRenewals = 0
	changed := s.changeNotifications
	c.ledger.Unlock()
	for _, m := range changed {
		c.Deliver(c.Context(), m)
	}
	if c.opts.OnRenewed != nil {
		c.opts.OnRenewed()
	}
}

// adopt takes over the session that another Conn has lost, and renews it: at
// once, or later if the server has refused that more than once.
func (c *conn) adopt(handoff *sessionstate.Handoff) {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	c.ledger.State.AdoptHandoff(handoff, &session{lost: true})
	c.state.refusedRenewals = handoff.RefusedRenewals
	c.state.downFault = &httpdial.Fault{Reason: httpdial.ReasonServerDown, Text: "the session with " + c.target.Peer.String() + " is lost"}
	c.reconnector.wake()
}

// renewedSession is a session that the bridge itself begins, after the client's was lost; it is a
// remoteconn.ReplacementSession.
type renewedSession struct {
	c *conn    // the Conn that the session is of
	s *session // the session
}

// OnInitialized implements remoteconn.ReplacementSession: it notes the version in answer, and with
// NotifyAfterRenewal what the client is told has changed.
func (o *renewedSession) OnInitialized(answer jsonrpc.Message, changed []jsonrpc.Message) {
	o.s.version, o.s.initialized = negotiatedVersion(answer), true
	if o.c.opts.NotifyAfterRenewal {
		o.s.changeNotifications = changed
	}
}

// SendRequest implements remoteconn.ReplacementSession: it sends m and waits for the response.
func (o *renewedSession) SendRequest(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, *httpdial.Fault) {
	c := o.c
	call := newCall(c, m)
	call.session, call.reply = o.s, make(chan jsonrpc.Message, 1)
	c.ledger.Lock()
	c.ledger.Add(call)
	c.ledger.Unlock()
	defer call.cancelPost()
	defer context.AfterFunc(ctx, call.cancelPost)()
	fault := c.post(call)
	close(call.accepted)
	if fault == nil {
		select {
		case reply := <-call.reply:
			return reply, nil
		case <-o.s.ended:
			fault = o.s.endFault
		case <-ctx.Done():
			fault = c.target.Peer.NetFault(ctx.Err())
		}
	}
	if !c.ledger.ClaimCall(call) {
		return <-call.reply, nil // whoever has claimed the call is about to answer it
	}
	return jsonrpc.Message{}, fault
}

// SendNotification implements remoteconn.ReplacementSession: it sends m and waits until it is accepted.
func (o *renewedSession) SendNotification(ctx context.Context, m jsonrpc.Message) *httpdial.Fault {
	call := newCall(o.c, m)
	defer call.cancelPost()
	call.session = o.s
	defer context.AfterFunc(ctx, call.cancelPost)()
	return o.c.post(call)
}
