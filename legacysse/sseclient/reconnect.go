package sseclient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reconnector sees to it that a conn has a session: it opens the event stream when the client
// has something to say, and begins a new session when that stream has ended. Its
// goroutine runs as long as there is, or should be, a session.
type reconnector struct {
	c        *conn         // the conn that needs sessions
	retryNow chan struct{} // an element in it ends the pause before the next attempt
	running  bool          // run is under way; guarded by the lock of the ledger
}

// wake has the reconnector get a session now: it starts its goroutine, or ends its pause before the next
// attempt. The lock of the ledger is held.
func (k *reconnector) wake() {
	if !k.running {
		k.running = k.c.Go(k.run)
		return
	}
	select {
	case k.retryNow <- struct{}{}:
	default:
	}
}

// run gets a session, and another one when that is lost, until there is no
// use in it any more.
func (k *reconnector) run() {
	c := k.c
	failures := 0 // in a row
	c.ledger.Lock()
	refused := c.state.refusedRenewals
	c.ledger.Unlock()
	if refused > 1 {
		failures = refused - 1
		k.pause(reconnectDelay(0, failures-1))
	}
	for c.Context().Err() == nil {
		session, fault := k.connect()
		var wait time.Duration
		if fault != nil {
			wait = fault.RetryAfter
		} else {
			<-session.ended
			wait = session.serverRetry
			if time.Since(session.began) >= steadyAfter {
				failures = 0
			}
			k.handleSessionLoss(session)
		}
		if c.Context().Err() != nil || k.stopIfIdle() {
			return
		}
		k.pause(reconnectDelay(wait, failures))
		failures++
	}
}

// stopIfIdle notes that the reconnector has ended if there is nothing for it to do: run must
// then return.
func (k *reconnector) stopIfIdle() (ended bool) {
	c := k.c
	c.ledger.Lock()
	defer c.ledger.Unlock()
	k.running = c.Context().Err() == nil && (c.state.downFault != nil || len(c.state.pending) > 0)
	return !k.running
}

// pause waits for d, or until wake is called or the Conn has ended.
func (k *reconnector) pause(d time.Duration) { httpdial.Pause(k.c.Context(), k.retryNow, d) }

// reconnectDelay returns how long to wait before the next attempt: at first as long as the
// server has said (retry; 0: it has not), and longer after each failure in a row.
func reconnectDelay(retry time.Duration, failures int) time.Duration {
	d := defaultReconnectDelay
	if retry > 0 {
		d = min(max(retry, minReconnectDelay), maxServerRetry)
	}
	if failures == 0 || d >= maxBackoff {
		return d
	}
	d = min(max(d, defaultReconnectDelay)<<min(failures, 10), maxBackoff)
	return d - rand.N(d/4)
}

// connect makes one attempt to get a session. If the client's initialize does not wait for
// the session, connect initializes it in the client's place. The session that it returns may have ended: because an initialize of
// the client has come meanwhile, which needs another one (LE16).
func (k *reconnector) connect() (*session, *httpdial.Fault) {
	c := k.c
	ctx := c.Context()
	c.ledger.Lock()
	if len(c.state.pending) == 0 {
		ctx = httpdial.Unattended(ctx)
	} else if c.opts.Authorize != nil {
		ctx = httpdial.WithProgress(ctx, c.tellPending)
	}
	c.ledger.Unlock()
	session, wrongTransport, fault := c.openStream(ctx)
	if fault == nil && !k.useSession(session) {
		fault = k.renew(session)
		switch {
		case fault == nil && k.useSession(session):
			c.log.Info("connected again", "url", c.target.Peer.String())
			k.notifyRenewed(session)
		case fault == nil || k.isInitializeWaiting(): // run makes the next attempt at once, for the client's initialize
			session.stop()
			return session, nil
		default:
			session.stop()
			<-session.ended
			k.handleSessionLoss(session)
		}
	}
	if fault != nil && c.Context().Err() == nil {
		k.handleOpenFailure(fault, wrongTransport)
	}
	return session, fault
}

// isInitializeWaiting reports whether an initialize of the client waits for a session.
func (k *reconnector) isInitializeWaiting() bool {
	k.c.ledger.Lock()
	defer k.c.ledger.Unlock()
	return k.c.ledger.InitializeGate != nil
}

// tellPending tells the clients of the requests that wait for a session, and have asked for progress,
// what they wait for: text.
func (c *conn) tellPending(text string) {
	c.ledger.Lock()
	var tells []func(string)
	for _, call := range c.state.pending {
		if call.tell == nil {
			call.tell = httpdial.ProgressOf(c.WithProgress(call.postCtx, call.msg, false))
		}
		if call.tell != nil && c.ledger.Has(call) { // otherwise it was cancelled
			tells = append(tells, call.tell)
		}
	}
	c.ledger.Unlock()
	for _, tell := range tells {
		tell(text)
	}
}

// useSession makes a session the one that messages go to, and sends the requests that
// have waited for it. false: nothing was done. The session has to be initialized in the
// client's place first, or was, and an initialize of the client waits by now; or the Conn is closed.
func (k *reconnector) useSession(session *session) bool {
	c := k.c
	if c.sendSlot.Acquire(c.Context(), &c.Base) != nil {
		return false
	}
	defer c.sendSlot.Release()
	c.ledger.Lock()
	if session.initialized && c.ledger.InitializeGate != nil || !session.initialized && (len(c.state.pending) == 0 || c.needsRenewal()) {
		c.ledger.Unlock()
		return false
	}
	var calls []*call
	for _, call := range c.state.pending {
		if c.ledger.Has(call) { // otherwise it was cancelled
			call.session = session
			calls = append(calls, call)
		}
	}
	c.state.pending, c.state.session, c.state.downFault = nil, session, nil
	c.ledger.Unlock()
	for _, call := range calls {
		c.Go(func() { c.run(call) })
		c.awaitAcceptance(c.Context(), call.accepted, call.written, aheadTimeout)
	}
	return true
}

// handleOpenFailure deals with an attempt that has not got a session: it answers the requests that have
// waited for one with the fault, and sets downFault if the reconnector is to go on trying. Or it ends
// the Conn, if wrongTransport and ReportWrongTransport are set: then those requests are WrongTransportError.Unsent.
func (k *reconnector) handleOpenFailure(fault *httpdial.Fault, wrongTransport bool) {
	c := k.c
	c.log.Warn("cannot connect", append(fault.LogAttrs(), "url", c.target.Peer.String())...)
	c.ledger.Lock()
	calls := slices.DeleteFunc(c.state.pending, func(call *call) bool { return !c.ledger.Has(call) }) // without those that were cancelled
	c.state.pending = nil
	first := c.state.downFault == nil
	if wrongTransport && c.opts.ReportWrongTransport {
		end := &WrongTransportError{Status: fault.Status, Text: fault.Text}
		for _, call := range calls {
			end.Unsent = append(end.Unsent, call.msg)
		}
		if !first {
			end.EndedSession = c.ledger.State.Handoff(c.state.refusedRenewals + 1)
		}
		if c.ledger.InitializeGate == nil {
			c.ledger.InitializeGate = make(chan struct{}) // which stays shut: no other request gets into pending
		}
		c.ledger.Unlock()
		c.refusing.Wait()
		c.End(end)
		return
	}
	goesOn := !first || fault.Transient && !c.opts.NoRenew && c.ledger.State.InitializeRequest.Kind() == jsonrpc.Request
	if goesOn {
		c.state.downFault = fault
	} else {
		c.ledger.State.InitializeRequest = jsonrpc.Message{}
	}
	for _, call := range calls {
		c.ledger.Remove(call)
	}
	c.ledger.Unlock()
	if goesOn {
		more := *fault
		more.Text = httpdial.AppendSentence(more.Text, "it is tried again for as long as the client stays")
		fault = &more
	}
	for _, call := range calls {
		c.answerFault(call, fault)
	}
}

// handleSessionLoss deals with a session whose stream has ended: who waits for a response
// gets an error, and the server's open requests are cancelled for the client. With NoRenew it ends the Conn; otherwise it
// sets downFault if there is a session of the client to renew.
func (k *reconnector) handleSessionLoss(s *session) {
	c := k.c
	c.ledger.Lock()
	s.lost = true
	fault := s.endFault
	if s.bridgeEndFault != nil {
		fault = s.bridgeEndFault
	}
	if c.state.session == s {
		c.state.session = nil
		if c.ledger.State.InitializeRequest.Kind() == jsonrpc.Request && !c.opts.NoRenew {
			c.state.downFault = &httpdial.Fault{Reason: fault.Reason, Status: fault.Status, DataMembers: fault.DataMembers,
				Text: fmt.Sprintf("the session with %s is lost", c.target.Peer)}
		}
	}
	calls := c.ledger.Select(func(call *call) bool { return call.session == s })
	for _, call := range calls {
		c.ledger.Remove(call)
	}
	withdrawn := c.ledger.State.CancelNotifications(s, "the connection to the server was lost")
	c.ledger.Unlock()
	if c.Context().Err() != nil {
		return
	}
	c.log.Warn("the session is lost", "url", c.target.Peer.String(), "reason", fault.Reason)
	for _, call := range calls {
		c.answerFault(call, fault)
	}
	for _, m := range withdrawn {
		c.Deliver(c.Context(), m)
	}
	if c.opts.NoRenew {
		c.End(ErrSessionLost)
	}
}
