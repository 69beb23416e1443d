package streamclient

import (
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// state is everything about a conn that changes.
type state struct {
	closed bool

	// calls are the requests that wait for a response, the bridge's own among
	// them. Who takes a call out ends it: closes its done.
	calls    map[jsonrpc.ID]*call
	inFlight int // how many of them are the client's

	// last is the sent of the message that was entered last; see Send.
	last <-chan struct{}

	// gate is not nil while initialize is on its way, and closed when it was
	// answered. Nothing but responses goes out meanwhile.
	gate chan struct{}

	session *session // nil before initialize and while the server is down
	opening *session // what the reply to the client's initialize said so far
	repair  *repair  // not nil while the bridge tries to get a session
	refused int      // renewals in a row that a Conn before this one has ended with

	books sessionstate.Books[*session] // what a new session has to be told (LE5), and what the server has asked
}

// session is what one initialize has set up. It also stands for a
// server without sessions: then id is empty.
type session struct {
	id    string
	ctx   context.Context // done when the session is over
	stop  context.CancelFunc
	heard chan struct{} // closed when the server has answered the first GET
	deaf  chan struct{} // closed when the server offers no standalone stream

	version     string // negotiated, "" until the result is there
	initialized bool   // it was told notifications/initialized
	listening   bool   // a goroutine reads its standalone stream, or did
	lost        bool   // the server has forgotten it, or it was replaced

	away   chan struct{} // closed while its standalone stream cannot be had; another one when it can again
	isAway bool          // it is closed

	changed []jsonrpc.Message // what the client is told of a new one, with TellRenewed
}

// enter waits while the gate is shut, and enters the call into the books. It
// returns what to wait for until it is the call's turn; nil when the message
// is not to be sent, because of the fault or because nobody needs it.
func (c *conn) enter(ctx context.Context, call *call) (ahead <-chan struct{}, fault *httpdial.Fault, err error) {
	for {
		e := c.tryEnter(call)
		if e.drop != "" {
			c.log.Debug("message dropped: "+e.drop, "method", call.method)
		}
		if e.gate == nil {
			return e.ahead, e.fault, e.err
		}
		select {
		case <-e.gate:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, nil, context.Cause(c.ctx)
		}
	}
}

// entry is what becomes of a message: exactly one field is set.
type entry struct {
	ahead <-chan struct{} // it is sent after this was closed
	gate  <-chan struct{} // it has to come again after this was closed
	fault *httpdial.Fault // it is answered with this
	drop  string          // it is not needed, for this reason
	err   error           // it cannot be taken
}

func (c *conn) tryEnter(call *call) (e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	target := c.cancels(call)
	switch {
	case c.st.closed:
		return entry{err: errClosed}
	case target != nil && target.method == "initialize": // J11
		return entry{drop: "initialize cannot be cancelled"}
	case c.st.gate != nil && call.kind != jsonrpc.Response:
		return entry{gate: c.st.gate}
	}
	switch call.kind {
	case jsonrpc.Request:
		if e.fault, e.err = c.enterRequest(call); e.fault != nil {
			c.refusals.Add(1)
		}
	case jsonrpc.Notification:
		e.drop = c.enterNotification(call, target)
	case jsonrpc.Response:
		e.drop = c.enterResponse(call)
	}
	if e != (entry{}) {
		return e
	}
	e.ahead = c.st.last
	if e.ahead == nil {
		e.ahead = closedChannel
	}
	c.st.last = call.sent
	return e
}

var closedChannel = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// down reports whether the bridge tries in vain to get a session.
func (c *conn) down() bool { return c.st.session == nil && c.st.repair != nil }

// cancels returns the call that a notification cancels, nil: none. The bridge's
// own are not the client's to cancel.
func (c *conn) cancels(call *call) *call {
	if call.method != "notifications/cancelled" {
		return nil
	}
	if target := c.find(call.msg.RequestID()); target != nil && !target.private {
		return target
	}
	return nil
}

func (c *conn) enterRequest(call *call) (*httpdial.Fault, error) {
	if _, dup := c.st.calls[call.id]; dup {
		return nil, errDuplicate
	}
	if c.st.inFlight >= c.opts.MaxInFlight {
		return tooManyFault(), nil
	}
	if call.method == "initialize" {
		if c.st.session != nil && c.st.books.Begun {
			return httpdial.AlreadyBegun(), nil
		}
		c.beginInitialize(call)
	} else if c.down() {
		return c.downFault(c.st.repair), nil
	}
	c.st.calls[call.id] = call
	c.st.inFlight++
	return nil, nil
}

// beginInitialize forgets what belonged to the client's session before.
func (c *conn) beginInitialize(call *call) {
	if c.st.repair != nil { // the client does it itself
		c.st.repair.stop()
		c.st.repair = nil
	}
	c.st.books.Begin(call.msg)
	call.gate = make(chan struct{})
	c.st.gate = call.gate
}

// enterNotification returns why the notification is not to be sent.
func (c *conn) enterNotification(call, target *call) (drop string) {
	if call.method == "notifications/initialized" {
		c.st.books.Initialized = call.msg
		if s := c.st.session; s != nil {
			if s.initialized {
				return "the bridge has said so already"
			}
			s.initialized = true
		}
	}
	if target != nil {
		c.remove(target)
		// The server need not answer now, but it may end the stream (LE12): to
		// end it here and now would cost the connection.
		time.AfterFunc(cancelWait, target.cancel)
	}
	if c.down() {
		return "the server is down"
	}
	return ""
}

// enterResponse gives the client's response the id that the server knows
// (LE15), or returns why it is not to be sent.
func (c *conn) enterResponse(call *call) (drop string) {
	session, answer, ok := c.st.books.Answered(call.msg)
	switch {
	case !ok && c.down():
		return "the server is down"
	case ok && session.lost:
		return "the session that asked is gone"
	}
	call.msg, call.session = answer, session
	return ""
}

// find returns the call with this id, see jsonrpc.Find; nil: none.
func (c *conn) find(id jsonrpc.ID) *call {
	_, call, _ := jsonrpc.Find(c.st.calls, id)
	return call
}

func (c *conn) remove(call *call) {
	delete(c.st.calls, call.id)
	if !call.private {
		c.st.inFlight--
	}
	close(call.done)
}

// claim takes the call that a response with this id answers out of the books;
// nil: there is none (any more).
func (c *conn) claim(id jsonrpc.ID) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.find(id)
	if call != nil {
		c.remove(call)
	}
	return call
}

// claimCall is claim for a call at hand; false: somebody else has ended it.
func (c *conn) claimCall(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.calls[call.id] != call {
		return false
	}
	c.remove(call)
	return true
}

// current returns the session there is; nil: none.
func (c *conn) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.session
}

// sessionOf returns the session that a message belongs to; nil: none.
func (c *conn) sessionOf(call *call) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case call.session != nil:
		return call.session
	case call.method == "initialize":
		return nil
	case c.st.session == nil:
		return c.st.opening
	}
	return c.st.session
}

// openGate lets the messages pass that have waited for this initialize.
func (c *conn) openGate(gate chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.gate == gate {
		c.st.gate = nil
	}
	close(gate)
}

// shut returns the sessions that Close has to end.
func (c *conn) shut() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*session
	for _, s := range []*session{c.st.session, c.st.opening} {
		if s != nil && !s.lost {
			s.stop()
			s.lost = true
			all = append(all, s)
		}
	}
	return all
}

// remember keeps what a new session would have to be told as well.
func (c *conn) remember(call *call) {
	c.mu.Lock()
	ok := c.st.books.Remember(call.msg)
	c.mu.Unlock()
	if !ok {
		c.log.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
}
