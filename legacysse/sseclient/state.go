package sseclient

import (
	"context"
	"net/url"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// state is everything about a conn that changes.
type state struct {
	closed bool
	end    error // what Recv ends with, and Send fails with; nil: nothing yet

	// calls are the requests that wait for a response, the bridge's own among
	// them. Who takes a call out ends it.
	calls    map[jsonrpc.ID]*call
	inFlight int // how many of them are the client's

	// gate is not nil while the client's initialize is in progress, and closed
	// when it was answered. Nothing but responses goes out meanwhile.
	gate chan struct{}

	keeper  bool            // a keeper runs
	session *session        // nil: there is none (yet)
	pending []*call         // requests that wait for the first stream
	refused int             // renewals in a row that a Conn before this one has ended with
	down    *httpdial.Fault // why there is no session although there should be one; nil: there is, or nobody has asked for it

	books sessionstate.Books[*session] // what a new session has to be told (SS7), and what the server has asked
}

// session is one event stream.
type session struct {
	endpoint *url.URL       // for the POSTs
	peer     *httpdial.Peer // explains what goes wrong with them
	ctx      context.Context
	stop     context.CancelFunc // ends the stream
	ended    chan struct{}      // closed when the reader has ended
	began    time.Time
	retry    time.Duration   // what the server said of when to come back, 0: nothing; once ended is closed
	why      *httpdial.Fault // why the stream has ended; once ended is closed

	// Guarded by the Conn's mu:
	version     string            // negotiated, "" until the result is there
	initialized bool              // it was told notifications/initialized
	lost        bool              // it is over
	forgotten   *httpdial.Fault   // why the bridge has ended the stream itself
	changed     []jsonrpc.Message // what the client is told of a new session, with TellRenewed
}

// entry is what becomes of a message: one field is set but for after.
type entry struct {
	send  bool            // it is sent now
	after *call           // once this one was accepted
	waits bool            // it will be sent by the keeper
	gate  <-chan struct{} // it has to come again after this was closed
	fault *httpdial.Fault // it is answered with this
	drop  string          // it is not needed, for this reason
	err   error           // it cannot be taken
}

// enter enters a message of the client into the books.
func (c *conn) enter(call *call) entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.st.closed:
		return entry{err: errClosed}
	case c.st.end != nil:
		return entry{err: c.st.end}
	case call.kind == jsonrpc.Response:
		return c.enterResponse(call)
	}
	target := c.cancels(call)
	switch {
	case target != nil && target.method == "initialize": // J11
		return entry{drop: "initialize cannot be cancelled"}
	case c.st.gate != nil:
		return entry{gate: c.st.gate}
	case call.kind == jsonrpc.Request:
		e := c.enterRequest(call)
		if e.fault != nil {
			c.refusals.Add(1)
		}
		return e
	}
	return c.enterNotification(call, target)
}

func (c *conn) enterRequest(call *call) entry {
	opens := call.method == "initialize"
	switch {
	case c.st.calls[call.id] != nil:
		return entry{err: errDuplicate}
	case c.st.inFlight >= c.opts.MaxInFlight:
		return entry{fault: &httpdial.Fault{Reason: httpdial.ReasonTooMany, Text: "too many requests in progress"}}
	case opens && c.st.session != nil && c.st.books.Begun:
		return entry{fault: httpdial.AlreadyBegun()}
	case c.st.down != nil && !opens:
		return entry{fault: c.downFault()}
	}
	if opens {
		c.st.books.Begin(call.msg)
		call.gate = make(chan struct{})
		c.st.gate = call.gate
	}
	c.st.calls[call.id] = call
	c.st.inFlight++
	if call.session = c.st.session; call.session != nil {
		return entry{send: true}
	}
	c.st.pending = append(c.st.pending, call)
	c.wake()
	return entry{waits: true}
}

// wake sees to it that a keeper runs, and does so now. c.mu is held.
func (c *conn) wake() {
	if !c.st.keeper {
		c.st.keeper = true
		c.wg.Go(c.keep)
		return
	}
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *conn) downFault() *httpdial.Fault {
	return &httpdial.Fault{Reason: httpdial.ReasonDown, Status: c.st.down.Status,
		Text: httpdial.Also("not connected: "+c.st.down.Text, "the bridge keeps trying")}
}

func (c *conn) enterNotification(call, target *call) entry {
	s := c.st.session
	if call.method == "notifications/initialized" {
		c.st.books.Initialized = call.msg
		if s != nil {
			if s.initialized {
				return entry{drop: "the bridge has said so already"}
			}
			s.initialized = true
		}
	}
	if target != nil { // its response is not wanted any more (J12)
		c.remove(target)
		if target.session != nil && target.session != s {
			target = nil
		}
	}
	if s == nil {
		return entry{drop: "there is no session"}
	}
	call.session = s
	return entry{send: true, after: target}
}

// enterResponse gives the client's response the id that the server knows.
func (c *conn) enterResponse(call *call) entry {
	session, answer, ok := c.st.books.Answered(call.msg)
	if !ok { // more were asked than are noted
		session = c.st.session
	}
	if session == nil || session.lost {
		return entry{drop: "the session that asked is gone"}
	}
	call.msg, call.session = answer, session
	return entry{send: true}
}

// cancels returns the call that a notification cancels, nil: none. The bridge's
// own are not the client's to cancel.
func (c *conn) cancels(call *call) *call {
	if call.method != "notifications/cancelled" {
		return nil
	}
	if _, target, ok := jsonrpc.Find(c.st.calls, call.msg.RequestID()); ok && !target.private() {
		return target
	}
	return nil
}

// remove takes a call out of the books. Its POST has a moment left to come to
// its end: to cut it off here and now would cost the connection. c.mu is held.
func (c *conn) remove(call *call) {
	delete(c.st.calls, call.id)
	if !call.private() {
		c.st.inFlight--
	}
	if call.late != nil {
		call.late.Stop()
	}
	if !call.isAccepted() {
		time.AfterFunc(lingerTime, call.cancel)
	}
}

// claim takes the call that a response with this id answers out of the books;
// nil: there is none (any more).
func (c *conn) claim(id jsonrpc.ID) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, call, ok := jsonrpc.Find(c.st.calls, id)
	if !ok {
		return nil
	}
	c.remove(call)
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

// openGate lets the messages pass that have waited for this initialize.
func (c *conn) openGate(gate chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.gate == gate {
		c.st.gate = nil
	}
	close(gate)
}

// track notes a request of the server, and returns it as the client is to know it.
func (c *conn) track(m jsonrpc.Message, session *session) jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, _ = c.st.books.Asked(session, m)
	return m
}

// untrack forgets the request that the server cancels, and names it as the
// client knows it.
func (c *conn) untrack(m jsonrpc.Message, session *session) jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.books.Cancelled(session, m)
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
