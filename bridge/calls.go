package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// lateAfter are the ages at which Calls.Late is told of a call.
var lateAfter = [...]time.Duration{10 * time.Second, 60 * time.Second}

// lookEvery is how often Calls looks for late calls while there are any calls.
const lookEvery = 5 * time.Second

// Calls are the requests of clients that wait for their answers, in any number of
// conversations (PumpOptions.Calls). A subscriptions/listen is none of them: it may last.
// The zero Calls works. Its methods may be called concurrently.
type Calls struct {
	// Late is told of a call once it is more than 10 seconds old, and again once it is more
	// than 60. It is called by a goroutine of the Calls. nil: nobody is told.
	Late func(LateCall)

	looks sync.WaitGroup

	mu          sync.Mutex
	first, last *inProgress // the oldest and the newest
	n           int
	timer       *time.Timer // nil: nobody looks
	closed      bool
}

// LateCall is a call that waits for its answer.
type LateCall struct {
	Ctx    context.Context // of the conversation
	Method string
	ID     jsonrpc.ID // as the client has spelled it
	Since  time.Time
}

// inProgress is a call in its Calls, which it is in or has been in once at most.
type inProgress struct {
	LateCall
	by         canceller // who can cancel it; nil: nobody
	in         bool      // it was entered
	told       int       // how many of lateAfter Late was told of
	prev, next *inProgress
}

// InProgress returns how many calls wait for an answer, and since when the oldest one does.
func (c *Calls) InProgress() (n int, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first != nil {
		oldest = c.first.Since
	}
	return c.n, oldest
}

// Cancel cancels the calls in progress of which match says so: their servers are told, and
// their clients get an error. It returns how many those are. An initialize cannot be cancelled, nor a
// subscriptions/listen of an Exchange. match must not call methods of Calls.
func (c *Calls) Cancel(match func(LateCall) bool) (n int) {
	type found struct {
		by canceller
		id jsonrpc.ID
	}
	var all []found
	c.mu.Lock()
	for p := c.first; p != nil; p = p.next {
		if p.by != nil && p.Method != "initialize" && match(p.LateCall) {
			all = append(all, found{p.by, p.ID})
		}
	}
	c.mu.Unlock()
	for _, f := range all {
		if f.by.cancelCall(f.id) {
			n++
		}
	}
	return n
}

// canceller has calls that can be cancelled, false: it has no such call any more.
type canceller interface{ cancelCall(id jsonrpc.ID) bool }

// begin enters a call as p, which is the caller's and must not move before end, unless it is
// not one that counts. A nil Calls works.
func (c *Calls) begin(ctx context.Context, p *inProgress, method string, id jsonrpc.ID) {
	if c == nil || method == say.Listen {
		return
	}
	p.LateCall, p.in = LateCall{Ctx: ctx, Method: method, ID: id, Since: time.Now()}, true
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.prev = c.last; p.prev != nil {
		p.prev.next = p
	} else {
		c.first = p
	}
	c.last = p
	c.n++
	if c.timer == nil && c.Late != nil && !c.closed {
		c.looks.Add(1)
		c.timer = time.AfterFunc(lookEvery, c.look)
	}
}

// end takes a call out, if it was entered.
func (c *Calls) end(p *inProgress) {
	if !p.in {
		return
	}
	p.in = false
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		c.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		c.last = p.prev
	}
	p.prev, p.next = nil, nil
	c.n--
}

// look tells of the calls that are late by now, and looks again later if there are any calls.
func (c *Calls) look() {
	defer c.looks.Done()
	for _, p := range c.late(time.Now()) {
		c.Late(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer = nil; c.first != nil && !c.closed {
		c.looks.Add(1)
		c.timer = time.AfterFunc(lookEvery, c.look)
	}
}

func (c *Calls) late(now time.Time) (all []LateCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := c.first; p != nil && now.Sub(p.Since) >= lateAfter[0]; p = p.next {
		if p.told < len(lateAfter) && now.Sub(p.Since) >= lateAfter[p.told] {
			p.told++
			all = append(all, p.LateCall)
		}
	}
	return all
}

// Close ends the looking for late calls. When it returns Late is called no more.
func (c *Calls) Close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil && c.timer.Stop() {
		c.looks.Done()
	}
	c.mu.Unlock()
	c.looks.Wait()
}
