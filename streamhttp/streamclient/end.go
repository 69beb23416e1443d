package streamclient

import (
	"errors"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Fault is an error that says why a message got no answer. Reason says it to programs,
// in one word ("unreachable", "tls", "timeout", "authorization_required" and others:
// docs/rules.md, C.7), Text to people, and Status is the HTTP status of the reply, 0 if
// there was none. Its method Response makes the JSON-RPC error for a request. A Fault
// must not be changed.
type Fault = httpdial.Fault

// Handoff is the session of a Conn that has ended because the server changed its
// transport. The Dialer of the new transport takes it as Options.Handoff, and renews the
// session there: package legacysse/sseclient has the same type.
type Handoff = sessionstate.Handoff

// ErrSessionLost is how Receive of a client with NoRenew ends when the server has
// forgotten the session.
var ErrSessionLost = errors.New("the server has forgotten the session")

// ErrUpgraded is how Receive ends when the server does not renew the session because
// it speaks 2026-07-28 by now (Options.ConfirmUpgrade, ED9).
var ErrUpgraded = errors.New("the server has gone over to protocol version 2026-07-28, which has no sessions")

// WrongTransportError is the error of Receive and of each later Send when the server has refused
// to initialize in the way of a server that does not speak Streamable HTTP (LE13). Only a
// client with ReportWrongTransport has it. Compare with errors.As.
type WrongTransportError struct {
	// Fault says what the server has answered. Its Response is what the
	// initialize request would have been answered with.
	Fault *Fault

	// EndedSession is for Options.Handoff of the Conn that takes over, if the server has
	// refused to renew a session. nil: the server has refused the client's own
	// initialize, which is still to be answered.
	EndedSession *Handoff
}

// Error returns the text of the Fault.
func (e *WrongTransportError) Error() string { return e.Fault.Error() }

// saysWrongTransport reports whether a server that is no Streamable HTTP server may
// have answered initialize like this (LE13): with a 4xx that says nothing about
// who asks, how much, or when, and has no error of 2026-07-28 (isModernError).
func saysWrongTransport(fault *httpdial.Fault) bool {
	return fault.Status/100 == 4 && fault.Reason != httpdial.ReasonTLS && !isStatusAboutCaller(fault.Status) && !isModernError(fault.ServerError)
}

// isStatusAboutCaller reports whether a status is about credentials, size, rate or
// time, and so tells nothing of the transport.
func isStatusAboutCaller(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusRequestHeaderFieldsTooLarge, http.StatusUnavailableForLegalReasons:
		return true
	}
	return false
}

// isModernError reports whether a server's error may be one of 2026-07-28: the server has
// understood what it was sent, and does not want it (ME9). Legacy servers have some of them, too.
func isModernError(m jsonrpc.Message) bool {
	switch string(m.Lookup("error", "code")) {
	case "-32020", "-32021", "-32022", "-32601":
		return true
	}
	return false
}

// endInitializeIfWrongTransport ends the Conn with a WrongTransportError, if first is the client's
// first initialize, its fault may come of the server's speaking another transport, and
// Options.ReportWrongTransport is set. What else is in progress is answered before, so that nothing is
// owed but the initialize. False: it goes on.
func (c *conn) endInitializeIfWrongTransport(first *call, fault *httpdial.Fault) (ended bool) {
	if !c.opts.ReportWrongTransport || first.initializeGate == nil || !saysWrongTransport(fault) {
		return false
	}
	c.ledger.Lock()
	if c.state.session != nil || !c.ledger.Has(first) {
		c.ledger.Unlock()
		return false
	}
	others := c.ledger.Select(func(other *call) bool { return other != first && !other.IsFromBridge() })
	first.replacedSession, c.state.newSession = first.newSession, nil
	c.ledger.Unlock()
	for _, other := range others {
		c.fail(c.Context(), other, fault)
	}
	c.log.Debug("this is no Streamable HTTP server", "url", c.target.Peer.String(), "status", fault.Status)
	c.End(&WrongTransportError{Fault: fault})
	return true
}

// isOnlyModernError reports whether a server's error can only be one of 2026-07-28:
// it misses that revision's headers, or lists it as what it speaks.
func isOnlyModernError(m jsonrpc.Message) bool {
	switch string(m.Lookup("error", "code")) {
	case "-32020":
		return true
	case "-32022":
		return era.HasModern(m.Lookup("error", "data", "supported"))
	}
	return false
}

// endIfUpgraded ends the Conn with ErrUpgraded, if the fault of the renewal r may come of the server's
// speaking 2026-07-28 by now, and Options.ConfirmUpgrade says so (ED9). False: it goes on.
func (n *renewer) endIfUpgraded(r *repair, fault *httpdial.Fault) (ended bool) {
	c := n.c
	if c.opts.ConfirmUpgrade == nil || fault == nil || !fault.ServerError.IsError() && !saysWrongTransport(fault) || !c.opts.ConfirmUpgrade(httpdial.Unattended(r.ctx), fault.ServerError) {
		return false
	}
	return n.giveUp(r, fault, func() error {
		c.log.Warn("the server speaks 2026-07-28 by now", "url", c.target.Peer.String())
		return ErrUpgraded
	})
}

// endRenewalIfWrongTransport ends the Conn with a WrongTransportError, if the fault of the renewal r
// may come of the server's speaking another transport by now, and Options.ReportWrongTransport is
// set. False: it goes on.
func (n *renewer) endRenewalIfWrongTransport(r *repair, fault *httpdial.Fault) (ended bool) {
	c := n.c
	if !c.opts.ReportWrongTransport || !saysWrongTransport(fault) {
		return false
	}
	return n.giveUp(r, fault, func() error {
		c.log.Warn("this is no Streamable HTTP server any more", "url", c.target.Peer.String(), "status", fault.Status)
		c.ledger.Lock()
		defer c.ledger.Unlock()
		return &WrongTransportError{Fault: fault, EndedSession: c.ledger.State.Handoff(n.refusedRenewals + 1)}
	})
}

// giveUp ends the Conn, after the renewal r has failed, with what why returns.
// Whoever waits for an answer gets one before. false: the client initializes by
// itself.
func (n *renewer) giveUp(r *repair, fault *httpdial.Fault, why func() error) bool {
	c := n.c
	c.ledger.Lock()
	if n.repair != r {
		c.ledger.Unlock()
		return false
	}
	if c.ledger.InitializeGate == nil {
		c.ledger.InitializeGate = make(chan struct{}) // which stays shut
	}
	calls := c.ledger.Select(func(call *call) bool { return !call.IsFromBridge() })
	c.ledger.Unlock()
	lost := n.noSessionFault(fault)
	for _, call := range calls {
		c.fail(c.Context(), call, lost)
	}
	c.refusing.Wait()
	c.End(why())
	return true
}

// adopt takes over the session that another Conn has lost, and renews it: at
// once, or later if the server has refused that more than once.
func (n *renewer) adopt(handoff *sessionstate.Handoff) {
	c := n.c
	c.ledger.Lock()
	c.ledger.State.AdoptHandoff(handoff, &session{lost: true})
	n.refusedRenewals = handoff.RefusedRenewals
	r := n.newRepair(true)
	n.repair = r
	if handoff.RefusedRenewals < 2 {
		c.ledger.InitializeGate = r.attemptDone
	} else {
		close(r.attemptDone)
		r.putOffs = handoff.RefusedRenewals - 2
		r.putOff()
	}
	c.ledger.Unlock()
	c.Go(func() { n.repairLoop(r) })
}
