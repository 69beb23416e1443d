package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// lateAfter are the ages at which Calls.OnLate is told of a call.
var lateAfter = [...]time.Duration{10 * time.Second, 60 * time.Second}

// lookEvery is how often Calls looks for late calls while there are any calls.
const lookEvery = 5 * time.Second

// Calls are the requests of clients that wait for their answers, in any number of
// conversations (PumpOptions.Calls). Beside them it has what may last: each subscriptions/listen,
// and the requests of servers. The zero Calls works. Its methods may be called concurrently.
type Calls struct {
	// OnLate is told of a call once it is more than 10 seconds old, and again once it is more
	// than 60. It is called by a goroutine of the Calls. nil: nobody is told.
	OnLate func(LateCall)

	// Ended is told of what has ended, if a visit of Visit has noted something about it. It must not wait, and
	// must not call methods of the Calls or of the conversation. nil: nobody is told.
	Ended func(LateCall)

	looks sync.WaitGroup

	mu     sync.Mutex
	calls  callList
	beside callList    // what may last
	timer  *time.Timer // nil: nobody looks
	closed bool
}

// callList has calls in the order in which they came.
type callList struct {
	first, last *inProgress // the oldest and the newest
	count       int
}

// LateCall is a call that waits for its answer.
type LateCall struct {
	Ctx      context.Context // of the conversation
	Method   string
	ID       jsonrpc.ID // as the client has spelled it; of a server's request: as the client is asked
	ByServer bool       // the server has asked the client
	Since    time.Time
	Note     any // what a visit of Visit has returned; nil: nothing
}

// inProgress is a call in its Calls, which it is in or has been in once at most.
type inProgress struct {
	LateCall
	by          canceller // who can cancel it; nil: nobody
	in          *callList // nil: it was not entered, or has ended
	lateReports int       // how many of lateAfter OnLate was told of
	prev, next  *inProgress
}

// InProgress returns how many calls wait for an answer, and since when the oldest one does.
func (c *Calls) InProgress() (n int, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls.first != nil {
		oldest = c.calls.first.Since
	}
	return c.calls.count, oldest
}

// Visit calls visit with each call in progress, and then with what may last, the oldest of each first. What visit
// returns is noted with it, unless that is nil. Visit must not call methods of Calls, and a call does not end
// meanwhile: its answer has not been passed on, and is not until visit has returned.
func (c *Calls) Visit(visit func(LateCall) (note any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range []*callList{&c.calls, &c.beside} {
		for p := list.first; p != nil; p = p.next {
			if note := visit(p.LateCall); note != nil {
				p.Note = note
			}
		}
	}
}

// Cancel cancels the calls in progress of which match says so, and subscriptions: their servers are told, and
// their clients get an error, or the end of the subscription. It returns how many those are. An initialize
// cannot be cancelled. match must not call methods of Calls.
func (c *Calls) Cancel(match func(LateCall) bool) (n int) {
	type found struct {
		by canceller
		id jsonrpc.ID
	}
	var all []found
	c.mu.Lock()
	for _, list := range []*callList{&c.calls, &c.beside} {
		for p := list.first; p != nil; p = p.next {
			if p.by != nil && p.Method != "initialize" && match(p.LateCall) {
				all = append(all, found{p.by, p.ID})
			}
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

// begin enters a call as p, which is the caller's and must not move before end. A nil Calls works.
func (c *Calls) begin(ctx context.Context, p *inProgress, method string, id jsonrpc.ID) {
	if c == nil {
		return
	}
	lasts := method == ownmsg.Listen || p.ByServer
	p.Ctx, p.Method, p.ID, p.Since = ctx, method, id, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.in = &c.calls; lasts {
		p.in = &c.beside
	}
	p.in.add(p)
	if !lasts && c.timer == nil && c.OnLate != nil && !c.closed {
		c.looks.Add(1)
		c.timer = time.AfterFunc(lookEvery, c.reportLate)
	}
}

func (l *callList) add(p *inProgress) {
	if p.prev = l.last; p.prev != nil {
		p.prev.next = p
	} else {
		l.first = p
	}
	l.last = p
	l.count++
}

func (l *callList) remove(p *inProgress) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	p.prev, p.next = nil, nil
	l.count--
}

// end takes a call out, if it is there. It comes before its answer is passed on.
func (c *Calls) end(p *inProgress) {
	if p.in == nil {
		return
	}
	c.mu.Lock()
	p.in.remove(p)
	c.mu.Unlock()
	p.in = nil
	if p.Note != nil && c.Ended != nil {
		c.Ended(p.LateCall)
	}
}

// reportLate tells of the calls that are late by now, and looks again later if there are any calls.
func (c *Calls) reportLate() {
	defer c.looks.Done()
	for _, p := range c.lateCalls(time.Now()) {
		c.OnLate(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer = nil; c.calls.first != nil && !c.closed {
		c.looks.Add(1)
		c.timer = time.AfterFunc(lookEvery, c.reportLate)
	}
}

func (c *Calls) lateCalls(now time.Time) (all []LateCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := c.calls.first; p != nil && now.Sub(p.Since) >= lateAfter[0]; p = p.next {
		if p.lateReports < len(lateAfter) && now.Sub(p.Since) >= lateAfter[p.lateReports] {
			p.lateReports++
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
