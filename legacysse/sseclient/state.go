package sseclient

import (
	"context"
	"net/url"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// connState is everything about a conn that changes, beside the ledger, whose lock guards it.
type connState struct {
	session         *session        // the current session; nil: there is none (yet)
	renewing        *session        // the session that is being initialized in the client's place; nil: none is
	pending         []*call         // requests that wait for a session
	refusedRenewals int             // how many renewals in a row the server had refused before this Conn took the session over; 0 after a renewal
	downFault       *httpdial.Fault // why there is no session although there should be one; nil: there is one, or nobody has asked for one
}

// session is a session with the server, which lasts as long as its event stream.
type session struct {
	endpoint    *url.URL           // the address for the POSTs
	peer        *httpdial.Peer     // explains what goes wrong with the POSTs
	ctx         context.Context    // the ctx of the event stream; httpdial.Unattended, if no client's request waited for the session
	stop        context.CancelFunc // ends ctx, and with it the event stream
	ended       chan struct{}      // closed when the event stream has ended
	began       time.Time          // when the GET was sent
	serverRetry time.Duration      // how long the server wants its client to wait before it comes back, 0: it has not said; to be read once ended is closed
	endFault    *httpdial.Fault    // why the event stream has ended; to be read once ended is closed

	// What follows is guarded by the lock of the ledger.

	version             string            // the negotiated protocol version; "" until the result of initialize is there
	initialized         bool              // the server was sent notifications/initialized in it
	lost                bool              // the session is over
	bridgeEndFault      *httpdial.Fault   // why the bridge itself has ended the event stream; nil: it has not
	changeNotifications []jsonrpc.Message // that everything may have changed: what the client is told if this session replaces a lost one; only with NotifyAfterRenewal
}

// admitResult is what becomes of a message: exactly one field is set, and beside sendNow sendAfter may be.
type admitResult struct {
	sendNow           bool            // the message is sent now
	sendAfter         *call           // beside sendNow: the call that the message cancels, which the server has to accept first; nil: none
	leftToReconnector bool            // the message, a request, is sent by the reconnector once there is a session
	retryAfter        <-chan struct{} // admit has to be called again once this is closed
	answerWith        *httpdial.Fault // the message is a request, and is not sent: the bridge answers it with this fault
	dropReason        string          // the message is not needed, for this reason
	err               error           // the message cannot be taken: Send returns this
}

// admit decides what becomes of a message of the client. It enters a request into the ledger if it is sent now or
// left to the reconnector.
func (c *conn) admit(call *call) admitResult {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	if err := c.Err(context.Background()); err != nil {
		return admitResult{err: err}
	}
	if call.kind == jsonrpc.Response {
		return c.admitResponse(call)
	}
	target := c.ledger.CancelledCall(call.msg)
	switch {
	case target != nil && target.method == "initialize": // J11
		return admitResult{dropReason: "initialize cannot be cancelled"}
	case c.ledger.InitializeGate != nil:
		return admitResult{retryAfter: c.ledger.InitializeGate}
	case call.kind == jsonrpc.Request:
		d := c.admitRequest(call)
		if d.answerWith != nil {
			c.refusing.Add(1)
		}
		return d
	}
	return c.admitNotification(call, target)
}

// admitRequest decides what becomes of a request of the client while InitializeGate is open, and enters
// it into the ledger unless it is refused.
func (c *conn) admitRequest(call *call) admitResult {
	opens := call.method == "initialize"
	fault, err := c.ledger.RefusalOf(call.msg, c.opts.MaxInFlight, c.state.session != nil)
	switch {
	case fault != nil || err != nil:
		return admitResult{answerWith: fault, err: err}
	case c.state.downFault != nil && !opens && !c.canRetryAttended():
		return admitResult{answerWith: c.downFault()}
	}
	if opens {
		c.endBridgeSession()
		c.ledger.State.NoteInitialize(call.msg)
		call.initializeGate = make(chan struct{})
		c.ledger.InitializeGate = call.initializeGate
	}
	c.ledger.Add(call)
	if call.session = c.state.session; call.session != nil {
		return admitResult{sendNow: true}
	}
	c.state.pending = append(c.state.pending, call)
	c.reconnector.wake()
	return admitResult{leftToReconnector: true}
}

// endBridgeSession ends a session that the bridge has initialized, or is initializing: the client's own initialize, which is not
// refused, needs another one (LE16). The lock is held.
func (c *conn) endBridgeSession() {
	s := c.state.renewing
	if s == nil && c.state.session != nil && c.state.session.initialized { // after an initialize of the client that has failed
		s, c.state.session = c.state.session, nil
	}
	if s == nil {
		return
	}
	s.bridgeEndFault = &httpdial.Fault{Reason: httpdial.ReasonSessionLost, Text: "the client has sent initialize, which begins another session"}
	s.stop()
}

// canRetryAttended reports whether there is no session only because somebody has to sign in: then a request of the
// client is not refused, but waits for an attempt that is made for it. The lock is held; downFault is not nil.
func (c *conn) canRetryAttended() bool {
	return c.state.downFault.Reason == httpdial.ReasonAuthRequired && c.opts.AuthorizeTimeout != 0
}

// needsRenewal reports whether the next session has to be initialized in the client's place before the requests that wait for a
// session are sent. The lock is held.
func (c *conn) needsRenewal() bool {
	return c.state.downFault != nil && c.ledger.State.InitializeRequest.Kind() == jsonrpc.Request && c.ledger.InitializeGate == nil
}

// downFault returns the fault with which a client's request is answered while there is no session
// although there should be one. The lock is held.
func (c *conn) downFault() *httpdial.Fault {
	return httpdial.FollowUpFault(c.state.downFault, httpdial.ReasonServerDown, httpdial.AppendSentence("not connected: "+c.state.downFault.Text, "the bridge keeps trying"))
}

// admitNotification notes what a notification of the client says, and decides what becomes of it. target
// is the call that it cancels, which is over with that, or nil.
func (c *conn) admitNotification(call, target *call) admitResult {
	s := c.state.session
	if call.method == "notifications/initialized" {
		c.ledger.State.InitializedNotification = call.msg
		if s != nil {
			if s.initialized {
				return admitResult{dropReason: "the bridge has said so already"}
			}
			s.initialized = true
		}
	}
	if target != nil { // its response is not wanted any more (J12)
		c.ledger.Remove(target)
		if target.session != nil && target.session != s {
			target = nil
		}
	}
	if s == nil {
		return admitResult{dropReason: "there is no session"}
	}
	call.session = s
	return admitResult{sendNow: true, sendAfter: target}
}

// admitResponse decides what becomes of a response of the client: it goes to the session that has asked,
// with the id that the server knows, or is dropped if that session is gone.
func (c *conn) admitResponse(call *call) admitResult {
	session, answer, ok := c.ledger.State.RouteResponse(call.msg)
	if !ok { // more were asked than are noted
		session = c.state.session
	}
	if session == nil || session.lost {
		return admitResult{dropReason: "the session that asked is gone"}
	}
	call.msg, call.session = answer, session
	return admitResult{sendNow: true}
}
