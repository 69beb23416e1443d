package sseclient

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// handshake initializes a new session in the client's place, with the client's
// own words but another id, and tells it what the old one knew (SS7).
func (c *conn) handshake(s *session) *httpdial.Fault {
	c.mu.Lock()
	initialize, initialized := c.st.books.Greeting()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, initializeTimeout)
	defer cancel()
	result, fault := c.ask(ctx, initialize, s)
	if fault == nil && result.IsError() {
		fault = &httpdial.Fault{Reason: httpdial.ReasonRefused, Text: c.peer.String() + " refused to initialize the session again"}
	}
	if fault != nil {
		return fault
	}
	c.mu.Lock()
	s.version, s.initialized = negotiated(result), true
	if c.opts.TellRenewed {
		s.changed = c.st.books.Changed(result)
	}
	c.mu.Unlock()
	if fault := c.tell(initialized, s); fault != nil {
		return fault
	}
	c.restore(s)
	return nil
}

// restore sets the log level and the subscriptions of a new session.
func (c *conn) restore(s *session) {
	ctx, cancel := context.WithTimeout(s.ctx, restoreTimeout)
	defer cancel()
	c.mu.Lock()
	requests := c.st.books.Settings()
	c.mu.Unlock()
	for _, m := range requests {
		result, fault := c.ask(ctx, m, s)
		if fault != nil || result.IsError() {
			c.log.Warn("the new session did not take over a setting of the old one", "method", m.Method())
		}
	}
}

// ask makes a request of the bridge's own, and waits for the response.
func (c *conn) ask(ctx context.Context, m jsonrpc.Message, s *session) (jsonrpc.Message, *httpdial.Fault) {
	call := newCall(c, m)
	call.session, call.reply = s, make(chan jsonrpc.Message, 1)
	c.mu.Lock()
	c.st.calls[call.id] = call
	c.mu.Unlock()
	defer call.cancel()
	defer context.AfterFunc(ctx, call.cancel)()
	fault := c.post(call)
	close(call.accepted)
	if fault == nil {
		select {
		case reply := <-call.reply:
			return reply, nil
		case <-s.ended:
			fault = s.why
		case <-ctx.Done():
			fault = c.peer.NetFault(ctx.Err())
		}
	}
	if !c.claimCall(call) {
		return <-call.reply, nil // whoever has claimed the call is about to answer it
	}
	return jsonrpc.Message{}, fault
}

// tell sends a notification of the bridge's own.
func (c *conn) tell(m jsonrpc.Message, s *session) *httpdial.Fault {
	call := newCall(c, m)
	defer call.cancel()
	call.session = s
	defer context.AfterFunc(s.ctx, call.cancel)()
	return c.post(call)
}

// renewed is called when a session was renewed.
func (c *conn) renewed(s *session) {
	c.mu.Lock()
	c.st.refused = 0
	changed := s.changed
	c.mu.Unlock()
	for _, m := range changed {
		c.push(c.ctx, m)
	}
	if c.opts.Renewed != nil {
		c.opts.Renewed()
	}
}

// inherit takes over the session that another Conn has lost, and renews it: at
// once, or later if the server has refused that more than once.
func (c *conn) inherit(e *sessionstate.Estate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.st.books.Inherit(e, &session{lost: true})
	c.st.refused = e.Refused
	c.st.down = &httpdial.Fault{Reason: httpdial.ReasonDown, Text: "the session with " + c.peer.String() + " is lost"}
	c.wake()
}
