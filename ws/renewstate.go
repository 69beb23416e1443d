package ws

import (
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// renewState is everything about a renewer that changes.
type renewState struct {
	closed bool
	lost   bool // with NoRenew: the session is over
	keeper bool // the keeper runs

	link    *link           // the connection there is; nil: none
	attempt *attempt        // what messages wait for; nil: nothing
	down    *httpdial.Fault // not nil while the keeper tries again and again
	next    time.Time       // when it will

	calls map[jsonrpc.ID]jsonrpc.Message // the client's requests that were sent over link and wait for a response

	resume bool                      // the client takes it for granted that there is a session
	books  sessionstate.State[*link] // what a new session has to be told (LE5), and what the server has asked
}

// link is one connection.
type link struct {
	conn bridge.PullConn
	told bool // notifications/initialized; guarded by the renewer's mu
}

// attempt is an attempt to connect.
type attempt struct {
	done  chan struct{}
	fault *httpdial.Fault // set before done is closed; nil: there is a connection
}

func newAttempt() *attempt { return &attempt{done: make(chan struct{})} }

// entry is what becomes of a message: one of these.
type entry struct {
	link  *link // it is sent here, as msg
	msg   jsonrpc.Message
	wait  *attempt        // it has to come again after this has succeeded
	fault *httpdial.Fault // it is answered with this
	drop  string          // it is not needed, for this reason
	err   error           // it cannot be taken
}

// enter decides what becomes of a message of the client, and enters it into
// the books.
func (r *renewer) enter(m jsonrpc.Message) entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.st
	request := m.Kind() == jsonrpc.Request
	opens := request && m.Method() == "initialize"
	switch {
	case s.closed:
		return entry{err: errClosed}
	case s.lost:
		return entry{err: ErrSessionLost}
	case s.link != nil:
		return r.enterLink(m)
	case s.attempt != nil:
		return entry{wait: s.attempt}
	case !request:
		return entry{drop: "there is no connection"}
	case s.down != nil && !opens:
		return entry{fault: r.downFault()}
	}
	if opens { // the client begins anew; nobody needs to do so in its place
		s.resume = false
		r.st.books.Begin(m)
	}
	s.attempt = newAttempt()
	if s.keeper {
		signal(r.kick)
	} else {
		s.keeper = true
		r.wg.Go(r.keep)
	}
	return entry{wait: s.attempt}
}

// enterLink is enter for a message that can be sent. r.mu is held.
func (r *renewer) enterLink(m jsonrpc.Message) entry {
	l := r.st.link
	switch m.Kind() {
	case jsonrpc.Request:
		if _, dup := r.st.calls[m.ID()]; dup {
			return entry{err: errDuplicate}
		}
		if m.Method() == "initialize" {
			if r.st.books.Begun {
				return entry{fault: httpdial.AlreadyBegun()}
			}
			r.st.books.Begin(m)
		}
		r.st.calls[m.ID()] = m
	case jsonrpc.Notification:
		switch m.Method() {
		case "notifications/initialized":
			r.st.books.Initialized = m
			if l.told {
				return entry{drop: "the bridge has said so already"}
			}
			l.told = true
		case "notifications/cancelled": // its response is not wanted any more (J12)
			if id, _, ok := jsonrpc.Find(r.st.calls, m.RequestID()); ok {
				delete(r.st.calls, id)
			}
		}
	case jsonrpc.Response:
		asked, answer, ok := r.st.books.Answered(m)
		switch {
		case !ok:
			return entry{drop: "it answers nothing that the server has asked"}
		case asked != l:
			return entry{drop: "the session that asked is gone"}
		}
		m = answer
	}
	return entry{link: l, msg: m}
}

// forget takes a request that was not sent out of the books.
func (r *renewer) forget(m jsonrpc.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Kind() == jsonrpc.Request {
		delete(r.st.calls, m.ID())
	}
}

// claim takes the request that a response answers out of the books, and keeps
// what a new session would have to be told as well.
func (r *renewer) claim(answer jsonrpc.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, call, ok := jsonrpc.Find(r.st.calls, answer.ID())
	delete(r.st.calls, id)
	if !ok || answer.IsError() {
		return
	}
	switch {
	case call.Method() == "initialize":
		r.st.resume, r.st.books.Begun = true, true
		r.opts.Logger.Info("connected", "url", r.opts.Where)
	case !r.st.books.Remember(call):
		r.opts.Logger.Warn("too many subscriptions: this one will not survive a restart of the server")
	}
}

// track notes a request of the server, and returns it as the client is to know
// it; false: there are too many.
func (r *renewer) track(l *link, m jsonrpc.Message) (jsonrpc.Message, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.st.books.Asked(l, m)
}

// untrack forgets the request that the server cancels, and names it as the
// client knows it.
func (r *renewer) untrack(l *link, m jsonrpc.Message) jsonrpc.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.st.books.Cancelled(l, m)
}

// downFault says that there is no connection, and when there may be. r.mu is held.
func (r *renewer) downFault() *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonDown, Status: r.st.down.Status, Text: "not connected: " + r.st.down.Text}
	if wait := time.Until(r.st.next); wait > 0 {
		f.Text = httpdial.Also(f.Text, fmt.Sprintf("the next attempt is in %v", wait.Round(100*time.Millisecond)))
	} else {
		f.Text = httpdial.Also(f.Text, "an attempt is being made now")
	}
	return f
}
