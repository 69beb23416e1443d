package streamclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// noteSession looks at the session id of a reply (LE3). For an initialize it
// returns the session that begins with it.
func (c *conn) noteSession(call *call, of *session, resp *http.Response) (*session, *httpdial.Fault) {
	id := resp.Header.Get(wire.HeaderSession)
	if call.method != "initialize" {
		if id != "" && (of == nil || id != of.id) {
			c.log.Debug("the server sent another session id in mid-session, which is ignored")
		}
		return of, nil
	}
	if !isVisibleASCII(id) {
		return nil, &httpdial.Fault{Reason: httpdial.ReasonInvalid, Status: resp.StatusCode,
			Text: fmt.Sprintf("%s sent a session id with characters other than visible ASCII", c.peer)}
	}
	s := &session{id: id, heard: make(chan struct{}), deaf: make(chan struct{}), away: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	call.opening = s
	if !call.private {
		c.st.opening = s
	}
	return s, nil
}

func isVisibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// negotiated returns the version in an initialize result; "" if there is none
// that could stand in a header.
func negotiated(result jsonrpc.Message) string {
	var version string
	if json.Unmarshal(result.Lookup("result", "protocolVersion"), &version) != nil || !isVisibleASCII(version) {
		return ""
	}
	return version
}

// opened makes the answer to the client's initialize the current session.
func (c *conn) opened(call *call, m jsonrpc.Message) {
	c.mu.Lock()
	c.st.opening = nil
	s := call.opening
	if m.IsError() || s == nil {
		call.replaced = s
		c.mu.Unlock()
		return
	}
	s.version = negotiated(m)
	if old := c.st.session; old != nil {
		old.lost = true
		old.stop()
		call.replaced = old
	}
	c.st.session, c.st.books.Begun = s, true
	c.mu.Unlock()
	c.log.Info("connected", "url", c.peer.String(), "version", s.version, "session", s.id != "")
	if c.opts.Opened != nil {
		c.opts.Opened(s.id != "")
	}
}

// notOpened is called when the client's initialize has failed. If that may
// pass, the bridge goes on trying in the client's place.
func (c *conn) notOpened(call *call, fault *httpdial.Fault) {
	c.mu.Lock()
	call.replaced, c.st.opening = call.opening, nil
	if !fault.Transient || c.st.session != nil || c.st.closed || c.opts.NoRenew {
		c.mu.Unlock()
		return
	}
	r := c.newRepair(false)
	r.fault = fault
	c.st.repair = r
	c.mu.Unlock()
	fault.Text = httpdial.Also(fault.Text, "it is tried again for as long as the client stays")
	c.spawn(func() { c.repairLoop(r) })
}

// repair is the attempt of the bridge to get a session that the client
// takes for granted. There is one at a time.
type repair struct {
	ctx   context.Context
	stop  context.CancelFunc
	first chan struct{} // closed after an attempt that is made at once, behind a shut gate

	fault *httpdial.Fault // of the last attempt
	tries int             // attempts that were put off so far
	wait  time.Duration   // before the next attempt
	next  time.Time       // when that is; zero: it is under way
}

// newRepair is called with c.mu held.
func (c *conn) newRepair(now bool) *repair {
	r := &repair{first: make(chan struct{})}
	if !now {
		close(r.first) // nobody shall wait for it
		r.putOff()
	}
	r.ctx, r.stop = context.WithCancel(c.ctx)
	return r
}

// putOff is called with c.mu held.
func (r *repair) putOff() {
	r.wait = httpdial.Backoff(r.tries)
	r.next = time.Now().Add(r.wait)
	r.tries++
}

func (c *conn) downFault(r *repair) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonDown}
	f.Text = fmt.Sprintf("no connection to %s yet", c.peer)
	if r.fault != nil {
		f.Text, f.Status = "not connected: "+r.fault.Text, r.fault.Status
	}
	if wait := time.Until(r.next); !r.next.IsZero() && wait > 0 {
		f.Text = httpdial.Also(f.Text, fmt.Sprintf("the next attempt is in %v", wait.Round(100*time.Millisecond)))
	} else {
		f.Text = httpdial.Also(f.Text, "an attempt is being made now")
	}
	return f
}

// recoverSession gets a new session in the place of one that the server has
// forgotten (LE5). However many messages notice, it is done once.
func (c *conn) recoverSession(ctx context.Context, session *session) *httpdial.Fault {
	r := c.loseSession(session)
	if r == nil {
		return nil
	}
	select {
	case <-r.first:
	case <-ctx.Done():
		return c.peer.NetFault(ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.session != nil {
		return nil
	}
	return c.forgottenFault(r.fault)
}

// forgottenFault explains that there is no session; why may be nil.
func (c *conn) forgottenFault(why *httpdial.Fault) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonSessionLost}
	f.Text = fmt.Sprintf("%s has forgotten the session, and there is no new one yet", c.peer)
	if why != nil {
		f.Text, f.Status = f.Text+": "+why.Text, why.Status
	}
	return f
}

// loseSession starts the repair of a session that the server has forgotten,
// unless there is one already; nil: a newer session is there.
func (c *conn) loseSession(session *session) *repair {
	c.mu.Lock()
	if c.st.session != session {
		defer c.mu.Unlock()
		if c.st.session != nil {
			return nil
		}
		return c.st.repair
	}
	c.st.session = nil
	session.lost = true
	session.stop()
	if c.st.gate != nil { // the client itself is initializing again
		defer c.mu.Unlock()
		return &repair{first: c.st.gate}
	}
	if c.opts.NoRenew {
		c.mu.Unlock()
		c.log.Warn("the server has forgotten the session", "url", c.peer.String())
		c.cancel(ErrSessionLost)
		return nil
	}
	r := c.newRepair(true)
	c.st.repair, c.st.gate = r, r.first
	c.mu.Unlock()
	c.log.Warn("the server has forgotten the session: initializing again", "url", c.peer.String())
	c.spawn(func() {
		c.withdraw(session)
		c.repairLoop(r)
	})
	return r
}

// repairLoop tries until there is a session, or until the client or Close
// stops it.
func (c *conn) repairLoop(r *repair) {
	defer r.stop()
	for httpdial.Pause(r.ctx, nil, r.wait) {
		c.mu.Lock()
		r.next = time.Time{}
		c.mu.Unlock()
		session, refused, fault := c.handshake(r.ctx)
		if c.upgraded(r, fault) || refused && c.unrenewed(r, fault) {
			return
		}
		if c.repaired(r, session, fault) {
			c.tellChanged(session)
			return
		}
	}
}

// repaired takes over the result of an attempt; false: another one is needed.
func (c *conn) repaired(r *repair, session *session, fault *httpdial.Fault) bool {
	c.mu.Lock()
	if c.st.gate == r.first {
		c.st.gate = nil
		defer close(r.first)
	}
	switch {
	case c.st.repair != r: // the client initializes by itself
		c.mu.Unlock()
		if session != nil {
			session.stop()
			c.deleteSession(session)
		}
		return true
	case fault != nil:
		r.fault = fault
		r.putOff()
		c.mu.Unlock()
		c.log.Warn("cannot initialize", append(fault.Attrs(), "url", c.peer.String())...)
		return false
	}
	c.st.session, c.st.repair, c.st.refused = session, nil, 0
	c.mu.Unlock()
	c.log.Info("connected again", "url", c.peer.String())
	if c.opts.Renewed != nil {
		c.opts.Renewed()
	}
	c.listenOnce(session)
	return true
}

// tellChanged tells the client what may have changed with a new session (ST9).
// That waits for Recv; nothing else waits for it.
func (c *conn) tellChanged(session *session) {
	c.mu.Lock()
	var changed []jsonrpc.Message
	if session != nil && c.st.session == session {
		changed = session.changed
	}
	c.mu.Unlock()
	for _, m := range changed {
		c.push(c.ctx, m)
	}
}

// handshake initializes in the client's place, with the client's own words but
// another id, and tells the new session what the old one knew. refused: the
// fault is how the server has answered initialize, if it has.
func (c *conn) handshake(ctx context.Context) (session *session, refused bool, fault *httpdial.Fault) {
	c.mu.Lock()
	initialize, initialized := c.st.books.Greeting()
	c.mu.Unlock()
	call, fault := c.ask(ctx, initialize, nil)
	session, refused = call.opening, fault != nil
	if fault == nil && call.reply.IsError() {
		fault = &httpdial.Fault{Reason: httpdial.ReasonRefused, Own: call.reply,
			Text: fmt.Sprintf("%s refused to initialize the session again", c.peer)}
	}
	if fault == nil && session != nil {
		c.mu.Lock()
		session.version, session.initialized = negotiated(call.reply), true
		if c.opts.TellRenewed {
			session.changed = c.st.books.Changed(call.reply)
		}
		c.mu.Unlock()
		fault = c.tell(ctx, initialized, session)
	}
	if fault != nil || session == nil {
		if session != nil {
			session.stop()
			c.deleteSession(session)
		}
		return nil, refused, fault
	}
	c.restore(ctx, session)
	return session, false, nil
}

// restore sets the log level and the subscriptions of a new session (LE5).
func (c *conn) restore(ctx context.Context, session *session) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	c.mu.Lock()
	requests := c.st.books.Settings()
	c.mu.Unlock()
	for _, m := range requests {
		call, fault := c.ask(ctx, m, session)
		if fault != nil || call.reply.IsError() {
			c.log.Warn("the new session did not take over a setting of the old one", "method", m.Method())
		}
	}
}

// ask makes a request of the bridge's own, and waits for the response.
func (c *conn) ask(ctx context.Context, m jsonrpc.Message, session *session) (*call, *httpdial.Fault) {
	call := newCall(c, m)
	call.private, call.session = true, session
	c.mu.Lock()
	c.st.calls[call.id] = call
	c.mu.Unlock()
	defer call.cancel()
	defer context.AfterFunc(ctx, call.cancel)()
	fault := c.exchange(call)
	if c.claimCall(call) {
		if fault == nil { // the Conn is being closed
			fault = c.peer.NetFault(context.Canceled)
		}
		return call, fault
	}
	call.reply = <-call.replied // whoever has claimed the call is about to answer it
	return call, nil
}

// tell sends a notification of the bridge's own.
func (c *conn) tell(ctx context.Context, m jsonrpc.Message, session *session) *httpdial.Fault {
	call := newCall(c, m)
	call.private, call.session = true, session
	defer call.cancel()
	defer context.AfterFunc(ctx, call.cancel)()
	return c.exchange(call)
}

// track notes a request of the server, and returns it as the client is to know it.
func (c *conn) track(m jsonrpc.Message, session *session) jsonrpc.Message {
	if session == nil {
		return m
	}
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

// withdraw tells the client that nobody waits any more for the answers that
// the lost session has asked for.
func (c *conn) withdraw(session *session) {
	c.mu.Lock()
	notes := c.st.books.Withdrawn(session, "the server has forgotten the session")
	c.mu.Unlock()
	for _, m := range notes {
		c.push(c.ctx, m)
	}
}
