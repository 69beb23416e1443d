package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// lateAfter are the ages at which PendingCalls.OnLate is told of a call.
var lateAfter = [...]time.Duration{10 * time.Second, 60 * time.Second}

// lateCheckInterval is how often PendingCalls look for late calls while there are any calls.
const lateCheckInterval = 5 * time.Second

// PendingCalls are the requests of clients that wait for their answers, in any number of
// conversations (PumpOptions.PendingCalls). Beside these they have what may last: each
// subscriptions/listen, and the requests of servers. The zero PendingCalls work. Their methods may be
// called concurrently.
type PendingCalls struct {
	// OnLate is told of a call once it is more than 10 seconds old, and again once it is more
	// than 60. It is called by a goroutine of the PendingCalls. nil: nobody is told.
	OnLate func(PendingCall)

	// OnNotedEnd is told of a call that has ended, if Visit has noted something about it. It must not wait, and
	// must not call methods of the PendingCalls or of the conversation. nil: nobody is told.
	OnNotedEnd func(PendingCall)

	lateChecks sync.WaitGroup // runs of reportLate that go on, or are to come

	mu        sync.Mutex
	calls     callList    // all that are not longLived
	longLived callList    // subscriptions, and requests of servers
	lateTimer *time.Timer // of the next reportLate; nil: none is to come
	closed    bool
}

// callList has calls in the order in which they came.
type callList struct {
	oldest, newest *pendingEntry
	count          int
}

// PendingCall is a call that waits for its answer.
type PendingCall struct {
	Ctx      context.Context // of the conversation
	Method   string
	ID       jsonrpc.ID // of a client's request: as the client spells it; of a server's: as the client is asked
	ByServer bool       // the server has asked the client
	Since    time.Time
	Note     any // what Visit has noted; nil: nothing
}

// pendingEntry is a PendingCall in a callList. It is entered once at most.
type pendingEntry struct {
	PendingCall
	canceller   canceller     // who can cancel it; nil: nobody
	list        *callList     // nil: it was not entered, or has ended
	lateReports int           // how many of lateAfter OnLate was told of
	prev, next  *pendingEntry // in list
}

// CountAndOldest returns how many calls wait for an answer, without what may last, and since
// when the oldest one does; zero: there is none.
func (c *PendingCalls) CountAndOldest() (n int, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls.oldest != nil {
		oldest = c.calls.oldest.Since
	}
	return c.calls.count, oldest
}

// Visit calls visit with each call in progress, and then with what may last, the oldest of each first. What visit
// returns is noted with it, unless that is nil. visit must not call methods of PendingCalls, and a call does not end
// meanwhile: its answer has not been passed on, and is not until visit has returned.
func (c *PendingCalls) Visit(visit func(PendingCall) (note any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range []*callList{&c.calls, &c.longLived} {
		for p := list.oldest; p != nil; p = p.next {
			if note := visit(p.PendingCall); note != nil {
				p.Note = note
			}
		}
	}
}

// Cancel cancels the calls in progress of which match says so, and subscriptions: their servers are told, and
// their clients get an error, or the end of the subscription. It returns how many those are. An initialize
// cannot be cancelled. match must not call methods of PendingCalls.
func (c *PendingCalls) Cancel(match func(PendingCall) bool) (n int) {
	type found struct {
		canceller canceller
		id        jsonrpc.ID
	}
	var all []found
	c.mu.Lock()
	for _, list := range []*callList{&c.calls, &c.longLived} {
		for p := list.oldest; p != nil; p = p.next {
			if p.canceller != nil && p.Method != "initialize" && match(p.PendingCall) {
				all = append(all, found{p.canceller, p.ID})
			}
		}
	}
	c.mu.Unlock()
	for _, f := range all {
		if f.canceller.cancelCall(f.id) {
			n++
		}
	}
	return n
}

// canceller cancels calls that it has entered; false: it has no such call any more.
type canceller interface{ cancelCall(id jsonrpc.ID) bool }

// add enters a call as p, which is the caller's and must not move before remove. nil PendingCalls work.
func (c *PendingCalls) add(ctx context.Context, p *pendingEntry, method string, id jsonrpc.ID) {
	if c == nil {
		return
	}
	lasts := method == ownmsg.Listen || p.ByServer
	p.Ctx, p.Method, p.ID, p.Since = ctx, method, id, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.list = &c.calls; lasts {
		p.list = &c.longLived
	}
	p.list.add(p)
	if !lasts && c.lateTimer == nil && c.OnLate != nil && !c.closed {
		c.lateChecks.Add(1)
		c.lateTimer = time.AfterFunc(lateCheckInterval, c.reportLate)
	}
}

func (l *callList) add(p *pendingEntry) {
	if p.prev = l.newest; p.prev != nil {
		p.prev.next = p
	} else {
		l.oldest = p
	}
	l.newest = p
	l.count++
}

func (l *callList) remove(p *pendingEntry) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.oldest = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.newest = p.prev
	}
	p.prev, p.next = nil, nil
	l.count--
}

// remove takes a call out, if it is there. The answer is passed on afterwards (see Visit).
func (c *PendingCalls) remove(p *pendingEntry) {
	if p.list == nil {
		return
	}
	c.mu.Lock()
	p.list.remove(p)
	c.mu.Unlock()
	p.list = nil
	if p.Note != nil && c.OnNotedEnd != nil {
		c.OnNotedEnd(p.PendingCall)
	}
}

// reportLate tells of the calls that are late by now, and looks again later if there are any calls.
func (c *PendingCalls) reportLate() {
	defer c.lateChecks.Done()
	for _, p := range c.dueLateReports(time.Now()) {
		c.OnLate(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lateTimer = nil; c.calls.oldest != nil && !c.closed {
		c.lateChecks.Add(1)
		c.lateTimer = time.AfterFunc(lateCheckInterval, c.reportLate)
	}
}

// dueLateReports returns the calls that OnLate is to be told of now, and counts them as told.
func (c *PendingCalls) dueLateReports(now time.Time) (all []PendingCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := c.calls.oldest; p != nil && now.Sub(p.Since) >= lateAfter[0]; p = p.next {
		if p.lateReports < len(lateAfter) && now.Sub(p.Since) >= lateAfter[p.lateReports] {
			p.lateReports++
			all = append(all, p.PendingCall)
		}
	}
	return all
}

// Close ends the search for late calls. When it returns OnLate is called no more.
func (c *PendingCalls) Close() {
	c.mu.Lock()
	c.closed = true
	if c.lateTimer != nil && c.lateTimer.Stop() {
		c.lateChecks.Done()
	}
	c.mu.Unlock()
	c.lateChecks.Wait()
}
