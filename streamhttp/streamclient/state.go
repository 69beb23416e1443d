package streamclient

import (
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// state is everything about a conn that changes, beside the ledger, whose lock guards it.
type state struct {
	// lastSent is call.sent of the message that was admitted last, for which the next one waits; nil:
	// there was none.
	lastSent <-chan struct{}

	session    *session // the current session; nil until initialize was answered with a result, and while a lost session is not renewed
	newSession *session // begun by the reply to the client's initialize, whose answer has not come yet; nil: none
}

// session is what one initialize has set up. It also stands for a
// server without sessions: then id is empty.
type session struct {
	id             string             // the Mcp-Session-Id; "": the server has none
	ctx            context.Context    // the ctx of its standalone stream; done when the session is over. Its POSTs have the ctx of their call, and go on
	stop           context.CancelFunc // ends ctx
	listenAnswered chan struct{}      // closed when the server has answered the first GET for the standalone stream, or that has failed
	noListenStream chan struct{}      // closed when nobody reads a standalone stream any more: the server offers none, or the session is over

	version     string // the negotiated protocol version; "" until the result of initialize is there
	initialized bool   // the server was sent notifications/initialized in it
	listening   bool   // a goroutine reads its standalone stream, or did
	lost        bool   // the server has forgotten it, it was replaced, or the Conn is being closed

	streamUnavailable   chan struct{} // closed while its standalone stream cannot be had; another one when it can again
	isStreamUnavailable bool          // streamUnavailable is closed

	changeNotifications []jsonrpc.Message // that everything may have changed: what the client is told if this session replaces a lost one; only with NotifyAfterRenewal
}

// admit waits while InitializeGate is shut, and decides what becomes of a message of the client; a request that is to be
// sent is then in the ledger. ahead is closed when it is the message's turn to be sent. A nil ahead means that the message
// is not to be sent: it is to be answered with the fault, cannot be taken (err), or nobody needs it.
func (c *conn) admit(ctx context.Context, call *call) (ahead <-chan struct{}, fault *httpdial.Fault, err error) {
	for {
		result := c.tryAdmit(call)
		if result.dropReason != "" {
			c.log.Debug("message dropped: "+result.dropReason, "method", call.method)
		}
		if result.retryAfter == nil {
			return result.sendAfter, result.answerWith, result.err
		}
		if err := c.Wait(ctx, result.retryAfter); err != nil {
			return nil, nil, err
		}
	}
}

// admitResult is what becomes of a message: exactly one field is set.
type admitResult struct {
	sendAfter  <-chan struct{} // the message is sent once this is closed
	retryAfter <-chan struct{} // tryAdmit has to be called again once this is closed
	answerWith *httpdial.Fault // the message is a request, and is not sent: the bridge answers it with this fault
	dropReason string          // the message is not needed, for this reason
	err        error           // the message cannot be taken: Send returns this
}

// tryAdmit decides what becomes of a message of the client, and enters a request into the ledger if it
// is to be sent.
func (c *conn) tryAdmit(call *call) (result admitResult) {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	target := c.ledger.CancelledCall(call.msg)
	switch {
	case c.Context().Err() != nil:
		return admitResult{err: c.Err(c.Context())}
	case target != nil && target.method == "initialize": // J11
		return admitResult{dropReason: "initialize cannot be cancelled"}
	case c.ledger.InitializeGate != nil && call.kind != jsonrpc.Response:
		c.renewer.noteWaitingRequest(call)
		return admitResult{retryAfter: c.ledger.InitializeGate}
	case c.renewer.retryAttended(call):
		return admitResult{retryAfter: c.ledger.InitializeGate}
	}
	switch call.kind {
	case jsonrpc.Request:
		if result.answerWith, result.err = c.admitRequest(call); result.answerWith != nil {
			c.refusing.Add(1)
		}
	case jsonrpc.Notification:
		result.dropReason = c.admitNotification(call, target)
	case jsonrpc.Response:
		result.dropReason = c.admitResponse(call)
	}
	if result != (admitResult{}) {
		return result
	}
	c.assignSession(call)
	result.sendAfter = c.state.lastSent
	if result.sendAfter == nil {
		result.sendAfter = closedChannel
	}
	c.state.lastSent = call.sent
	return result
}

// admitNow enters a request into the ledger if it may be sent now, with nothing to wait
// for and nothing to answer.
func (c *conn) admitNow(call *call) (admitted bool) {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	if c.Context().Err() != nil || c.ledger.InitializeGate != nil || c.state.session == nil || !isClosed(c.state.lastSent) {
		return false
	}
	if fault, err := c.admitRequest(call); fault != nil || err != nil {
		return false
	}
	c.assignSession(call)
	c.state.lastSent = call.sent
	return true
}

// assignSession sets call.session, in which the call is posted first. The lock of the ledger is held:
// later there may be no session, because it is being renewed. A session that was lost meanwhile is
// replaced when the server refuses the call.
func (c *conn) assignSession(call *call) {
	switch {
	case call.session != nil: // a response belongs to the session that has asked
	case call.method == "initialize":
	case c.state.session != nil:
		call.session = c.state.session
	default:
		call.session = c.state.newSession
	}
}

// isClosed reports whether ch is closed; nil counts as closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return ch == nil
	}
}

// closedChannel is a closed channel: a message that has no other ahead of it waits for this.
var closedChannel = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// isDown reports whether there is no session, and the bridge tries to get one. The lock of the ledger is held.
func (c *conn) isDown() bool { return c.state.session == nil && c.renewer.repair != nil }

// admitRequest enters a request into the ledger. If the result is not nil, it was not entered: it is to
// be answered with the Fault, or cannot be taken.
func (c *conn) admitRequest(call *call) (*httpdial.Fault, error) {
	if fault, err := c.ledger.RefusalOf(call.msg, c.opts.MaxInFlight, c.state.session != nil); fault != nil || err != nil {
		return fault, err
	}
	if call.method == "initialize" {
		c.beginInitialize(call)
	} else if c.isDown() {
		return c.renewer.downFault(c.renewer.repair), nil
	}
	c.ledger.Add(call)
	return nil, nil
}

// beginInitialize ends a repair, shuts InitializeGate for the client's initialize, and forgets what
// the client has told its last session.
func (c *conn) beginInitialize(call *call) {
	if c.renewer.repair != nil { // the client does it itself
		c.renewer.repair.stop()
		c.renewer.repair = nil
	}
	c.ledger.State.NoteInitialize(call.msg)
	call.initializeGate = make(chan struct{})
	c.ledger.InitializeGate = call.initializeGate
}

// admitNotification notes what a notification of the client says, and returns why it is not to be sent;
// "": it is. target is the call that it cancels, which is over with that, or nil.
func (c *conn) admitNotification(call, target *call) (drop string) {
	if call.method == "notifications/initialized" {
		c.ledger.State.InitializedNotification = call.msg
		if s := c.state.session; s != nil {
			if s.initialized {
				return "the bridge has said so already"
			}
			s.initialized = true
		}
	}
	if target != nil {
		c.ledger.Remove(target)
		// The server need not answer now, but it may end the stream (LE12): to end it here and now would cost the
		// connection, and to end it before the server knows would look like a lost one.
		time.AfterFunc(maxCancelLinger, target.cancel)
		call.cancelledCall = target
	}
	if c.isDown() {
		return "the server is down"
	}
	return ""
}

// admitResponse gives the client's response the id that the server knows
// (LE15). It returns why the response is not to be sent; "": it is. One that answers no known
// request is sent as it is, in the current session.
func (c *conn) admitResponse(call *call) (drop string) {
	session, answer, ok := c.ledger.State.RouteResponse(call.msg)
	switch {
	case !ok && c.isDown():
		return "the server is down"
	case ok && session.lost:
		return "the session that asked is gone"
	}
	call.msg, call.session = answer, session
	return ""
}

// currentSession returns the session there is; nil: none.
func (c *conn) currentSession() *session {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	return c.state.session
}

// endSessions returns the sessions that Close has to end at the server: it stops them, and marks them as lost.
func (c *conn) endSessions() []*session {
	c.ledger.Lock()
	defer c.ledger.Unlock()
	var all []*session
	for _, s := range []*session{c.state.session, c.state.newSession} {
		if s != nil && !s.lost {
			s.stop()
			s.lost = true
			all = append(all, s)
		}
	}
	return all
}
