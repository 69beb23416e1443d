package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// lateAfter are the ages at which PendingCalls.OnLate is told of a client's request.
var lateAfter = [...]time.Duration{10 * time.Second, 60 * time.Second}

// lateCheckInterval is how often PendingCalls look for late calls, as long as there are any calls.
const lateCheckInterval = 5 * time.Second

// PendingCalls are the requests of clients that wait for their answers, in any number of
// conversations (PumpOptions.PendingCalls). Beside these they have what may last: each
// subscriptions/listen, and the requests of servers. The zero PendingCalls work. Their methods may be
// called concurrently.
type PendingCalls struct {
	// OnLate is told of a request of a client, but not of a subscription, when it is 10 seconds old, and again when it
	// is 60, or up to 5 seconds later. It is called by a goroutine of the PendingCalls. nil: nobody is told.
	OnLate func(PendingCall)

	// OnNotedEnd is told of a call that has ended, if Visit has noted something about it. It must not wait, and
	// must not call methods of the PendingCalls or of the conversation. nil: nobody is told.
	OnNotedEnd func(PendingCall)

	lateChecks sync.WaitGroup // waits for runs of reportLate that go on, or are to come

	mu        sync.Mutex  // guards the lists, the entries in them, lateTimer and closed
	calls     callList    // clients' requests, but for subscriptions
	longLived callList    // what may last: subscriptions, and requests of servers
	lateTimer *time.Timer // calls reportLate; nil: none is set
	closed    bool        // Close was called: the timer is not set any more
}

// callList is a linked list of calls in the order in which they came.
type callList struct {
	// the call that came first, and the one that came last; nil: there is none
	oldest, newest *pendingEntry
	count          int // how many calls it has
}

// PendingCall is a request of a client or a server that waits for its answer.
type PendingCall struct {
	Ctx      context.Context // the context of the conversation that it belongs to
	Method   string          // the method of the request
	ID       jsonrpc.ID      // its id, as it has come from the Conn of whoever has asked
	ByServer bool            // a server has asked its client; false: a client its server
	Since    time.Time       // when the bridge has received it
	Note     any             // what the function given to Visit has returned for it last; nil: nothing
}

// pendingEntry is a PendingCall in a callList. It is entered once at most, and must not move meanwhile.
type pendingEntry struct {
	PendingCall
	canceller   canceller // who can cancel the call; nil: nobody can
	list        *callList // the list that it is in; nil: in none
	lateReports int       // how many times OnLate was told of it
	// the call before, and the one after it, in list; nil: none
	prev, next *pendingEntry
}

// CountAndOldest returns how many requests of clients wait for an answer, subscriptions not counted, and since when
// the oldest one does; zero: there is none.
func (c *PendingCalls) CountAndOldest() (n int, oldest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls.oldest != nil {
		oldest = c.calls.oldest.Since
	}
	return c.calls.count, oldest
}

// Visit calls visit with each request of a client, and then with each call that may last (subscriptions, requests of
// servers), the oldest of each first. What visit returns is kept as the call's Note, unless it is nil. visit must not
// call methods of PendingCalls, and a call does not end meanwhile: its answer has not been passed on, and is not until
// Visit has returned.
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

// Cancel cancels those requests of clients, subscriptions included, for which match is true: the servers are told, and
// the clients get an error, or the end of the subscription. It returns how many it has cancelled. An initialize, and a
// request of a server, cannot be cancelled. match must not call methods of PendingCalls.
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

// canceller cancels a call that it has entered into PendingCalls, and answers it; false: it has no such call any more.
// id is PendingCall.ID.
type canceller interface{ cancelCall(id jsonrpc.ID) bool }

// add enters a call, whose fields it sets, as p, which is the caller's and must not move before remove. nil
// PendingCalls do nothing.
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

// add appends p as the newest call.
func (l *callList) add(p *pendingEntry) {
	if p.prev = l.newest; p.prev != nil {
		p.prev.next = p
	} else {
		l.oldest = p
	}
	l.newest = p
	l.count++
}

// remove takes the call p out of the list.
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

// remove takes a call out, if it was entered, and tells OnNotedEnd of it if it has a Note. It is called before the
// answer is passed on (see Visit).
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

// reportLate tells OnLate of the calls that are late by now, and sets the timer for the next look if there are any
// calls.
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

// dueLateReports returns the calls that OnLate has to be told of now, and counts them as told.
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

// Close ends the search for late calls. Once it has returned, OnLate is called no more.
func (c *PendingCalls) Close() {
	c.mu.Lock()
	c.closed = true
	if c.lateTimer != nil && c.lateTimer.Stop() {
		c.lateChecks.Done()
	}
	c.mu.Unlock()
	c.lateChecks.Wait()
}
