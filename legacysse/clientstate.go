package legacysse

import (
	"context"
	"net/url"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// clientState is everything about a clientConn that changes.
type clientState struct {
	closed bool
	end    error // what Recv ends with, and Send fails with; nil: nothing yet

	// calls are the requests that wait for a response, the bridge's own among
	// them. Who takes a call out ends it.
	calls    map[jsonrpc.ID]*clientCall
	inFlight int // how many of them are the client's

	// gate is not nil while the client's initialize is in progress, and closed
	// when it was answered. Nothing but responses goes out meanwhile.
	gate chan struct{}

	keeper  bool            // a keeper runs
	session *clientSession  // nil: there is none (yet)
	pending []*clientCall   // requests that wait for the first stream
	refused int             // renewals in a row that a Conn before this one has ended with
	down    *httpdial.Fault // why there is no session although there should be one; nil: there is, or nobody has asked for it

	books sessionstate.Books[*clientSession] // what a new session has to be told (SS7), and what the server has asked
}

// clientSession is one event stream.
type clientSession struct {
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

// clientEntry is what becomes of a message: one field is set but for after.
type clientEntry struct {
	send  bool            // it is sent now
	after *clientCall     // once this one was accepted
	waits bool            // it will be sent by the keeper
	gate  <-chan struct{} // it has to come again after this was closed
	fault *httpdial.Fault // it is answered with this
	drop  string          // it is not needed, for this reason
	err   error           // it cannot be taken
}

// enter enters a message of the client into the books.
func (c *clientConn) enter(call *clientCall) clientEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.st.closed:
		return clientEntry{err: errClientClosed}
	case c.st.end != nil:
		return clientEntry{err: c.st.end}
	case call.kind == jsonrpc.Response:
		return c.enterResponse(call)
	}
	target := c.cancels(call)
	switch {
	case target != nil && target.method == "initialize": // J11
		return clientEntry{drop: "initialize cannot be cancelled"}
	case c.st.gate != nil:
		return clientEntry{gate: c.st.gate}
	case call.kind == jsonrpc.Request:
		e := c.enterRequest(call)
		if e.fault != nil {
			c.refusals.Add(1)
		}
		return e
	}
	return c.enterNotification(call, target)
}

func (c *clientConn) enterRequest(call *clientCall) clientEntry {
	opens := call.method == "initialize"
	switch {
	case c.st.calls[call.id] != nil:
		return clientEntry{err: errClientDuplicate}
	case c.st.inFlight >= c.opts.MaxInFlight:
		return clientEntry{fault: &httpdial.Fault{Reason: httpdial.ReasonTooMany, Text: "too many requests in progress"}}
	case opens && c.st.session != nil && c.st.books.Begun:
		return clientEntry{fault: httpdial.AlreadyBegun()}
	case c.st.down != nil && !opens:
		return clientEntry{fault: c.downFault()}
	}
	if opens {
		c.st.books.Begin(call.msg)
		call.gate = make(chan struct{})
		c.st.gate = call.gate
	}
	c.st.calls[call.id] = call
	c.st.inFlight++
	if call.session = c.st.session; call.session != nil {
		return clientEntry{send: true}
	}
	c.st.pending = append(c.st.pending, call)
	c.wake()
	return clientEntry{waits: true}
}

// wake sees to it that a keeper runs, and does so now. c.mu is held.
func (c *clientConn) wake() {
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

func (c *clientConn) downFault() *httpdial.Fault {
	return &httpdial.Fault{Reason: httpdial.ReasonDown, Status: c.st.down.Status,
		Text: httpdial.Also("not connected: "+c.st.down.Text, "the bridge keeps trying")}
}

func (c *clientConn) enterNotification(call, target *clientCall) clientEntry {
	s := c.st.session
	if call.method == "notifications/initialized" {
		c.st.books.Initialized = call.msg
		if s != nil {
			if s.initialized {
				return clientEntry{drop: "the bridge has said so already"}
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
		return clientEntry{drop: "there is no session"}
	}
	call.session = s
	return clientEntry{send: true, after: target}
}

// enterResponse gives the client's response the id that the server knows.
func (c *clientConn) enterResponse(call *clientCall) clientEntry {
	session, answer, ok := c.st.books.Answered(call.msg)
	if !ok { // more were asked than are noted
		session = c.st.session
	}
	if session == nil || session.lost {
		return clientEntry{drop: "the session that asked is gone"}
	}
	call.msg, call.session = answer, session
	return clientEntry{send: true}
}

// cancels returns the call that a notification cancels, nil: none. The bridge's
// own are not the client's to cancel.
func (c *clientConn) cancels(call *clientCall) *clientCall {
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
func (c *clientConn) remove(call *clientCall) {
	delete(c.st.calls, call.id)
	if !call.private() {
		c.st.inFlight--
	}
	if call.late != nil {
		call.late.Stop()
	}
	if !call.isAccepted() {
		time.AfterFunc(clientLinger, call.cancel)
	}
}

// claim takes the call that a response with this id answers out of the books;
// nil: there is none (any more).
func (c *clientConn) claim(id jsonrpc.ID) *clientCall {
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
func (c *clientConn) claimCall(call *clientCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.calls[call.id] != call {
		return false
	}
	c.remove(call)
	return true
}

// openGate lets the messages pass that have waited for this initialize.
func (c *clientConn) openGate(gate chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.gate == gate {
		c.st.gate = nil
	}
	close(gate)
}

// track notes a request of the server, and returns it as the client is to know it.
func (c *clientConn) track(m jsonrpc.Message, session *clientSession) jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, _ = c.st.books.Asked(session, m)
	return m
}

// untrack forgets the request that the server cancels, and names it as the
// client knows it.
func (c *clientConn) untrack(m jsonrpc.Message, session *clientSession) jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.books.Cancelled(session, m)
}

// remember keeps what a new session would have to be told as well.
func (c *clientConn) remember(call *clientCall) {
	c.mu.Lock()
	ok := c.st.books.Remember(call.msg)
	c.mu.Unlock()
	if !ok {
		c.log.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
}
