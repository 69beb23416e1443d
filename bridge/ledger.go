package bridge

import (
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// call is one request that is owed an answer.
type call struct {
	id      jsonrpc.ID
	method  string
	token   jsonrpc.ID
	timeout *time.Timer // nil: none
}

// ledger keeps the requests that one side owes the other an answer to.
//
// A response leaves the books in two steps, take and settled, so that "nothing
// is owed" becomes true only after the answer was handed on.
type ledger struct {
	mu      sync.Mutex
	calls   map[jsonrpc.ID]*call
	handing int           // answers taken but not settled yet
	closed  bool          // nothing may be opened any more
	empty   chan struct{} // closed when somebody waits for it and nothing is owed
}

func (l *ledger) init() { l.calls = make(map[jsonrpc.ID]*call) }

var (
	errInUse = errors.New("a request with this id is already in progress")
	errShut  = errors.New("the other side has gone")
)

// open enters a request.
func (l *ledger) open(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errShut
	}
	if _, dup := l.calls[c.id]; dup {
		return errInUse
	}
	l.calls[c.id] = c
	return nil
}

// arm gives an open request its time-out.
func (l *ledger) arm(c *call, t *time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[c.id] != c {
		t.Stop()
		return
	}
	c.timeout = t
}

func (l *ledger) method(id jsonrpc.ID) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.find(id); c != nil {
		return c.method, true
	}
	return "", false
}

// take removes the request that a response with this id answers and returns
// the id as it was asked. settled must follow once the response was handed on.
func (l *ledger) take(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(id)
	if c == nil {
		return id, false
	}
	l.remove(c)
	l.handing++
	return c.id, true
}

// settled says that what take returned was handed on. Without a take before it, it does nothing.
func (l *ledger) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handing > 0 {
		l.handing--
	}
	l.signal()
}

// close removes a request that needs no answer any more.
func (l *ledger) close(id jsonrpc.ID) (jsonrpc.ID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(id)
	if c == nil {
		return id, false
	}
	l.remove(c)
	l.signal()
	return c.id, true
}

// shut removes and returns everything that is owed; nothing can be opened afterwards.
func (l *ledger) shut() []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	all := make([]*call, 0, len(l.calls))
	for _, c := range l.calls {
		l.remove(c)
		all = append(all, c)
	}
	l.signal()
	return all
}

// drained returns a channel that is closed when nothing is owed.
func (l *ledger) drained() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	done := l.empty
	l.signal()
	return done
}

// progress starts the time-out of the request with this token anew.
func (l *ledger) progress(token jsonrpc.ID, d time.Duration) {
	if d <= 0 || token.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if c.token == token && c.timeout != nil {
			c.timeout.Reset(d)
		}
	}
}

// find returns the request with this id: as spelled, or else the only one that
// is the same JSON value (a peer may have decoded and encoded it).
func (l *ledger) find(id jsonrpc.ID) *call {
	if c, ok := l.calls[id]; ok {
		return c
	}
	var found *call
	for _, c := range l.calls {
		if c.id.Equivalent(id) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}

func (l *ledger) remove(c *call) {
	delete(l.calls, c.id)
	if c.timeout != nil {
		c.timeout.Stop()
	}
}

func (l *ledger) signal() {
	if l.empty != nil && len(l.calls) == 0 && l.handing == 0 {
		close(l.empty)
		l.empty = nil
	}
}
