package streamhttp

import (
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
)

// exchanges holds the modern requests in progress. The zero value has none; watchDelay and timer.Do
// have to be set.
type exchanges struct {
	mu         sync.Mutex             // guards what follows, but for timer and wg
	unwatched  map[*exchange]struct{} // exchanges that watchAll has not seen
	watched    map[*exchange]struct{} // exchanges that watchAll has seen: their timers are set, and their clients watched
	byParty    map[string]int         // how many exchanges each party has; nil: they are not counted now
	closed     bool                   // close was called: add lets no exchange in any more
	watchDelay time.Duration          // how long an exchange waits for watchAll at most
	timer      lazytimer.Timer        // calls watchAll
	wg         sync.WaitGroup         // counts the exchanges
}

// add enters e, whose time begins, as one of at most max exchanges. The error says why there is no
// place for it: bridge.ErrClosing or errTooManyCalls.
func (x *exchanges) add(e *exchange, max int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return bridge.ErrClosing
	case !x.hasRoom(e, max):
		return errTooManyCalls
	}
	if x.unwatched == nil {
		x.unwatched, x.watched = make(map[*exchange]struct{}), make(map[*exchange]struct{})
	}
	x.unwatched[e] = struct{}{}
	if x.byParty != nil {
		x.byParty[e.Party()]++
	}
	x.wg.Add(1)
	e.began = time.Now()
	if len(x.unwatched) == 1 { // else the time is set
		x.timer.SetAtLatest(e.began.Add(x.watchDelay))
	}
	return nil
}

// hasRoom reports whether e may be one of max exchanges: a party may have no more of them than
// are free. They are counted by party once half of max are taken, and until more than three
// quarters are free: most requests never need to know. The caller holds the lock.
func (x *exchanges) hasRoom(e *exchange, max int) bool {
	free := max - len(x.unwatched) - len(x.watched)
	if free > max-max/4 {
		x.byParty = nil
	}
	if free > max/2 {
		return true
	}
	if x.byParty == nil {
		x.byParty = make(map[string]int)
		for _, some := range [...]map[*exchange]struct{}{x.unwatched, x.watched} {
			for other := range some {
				x.byParty[other.Party()]++
			}
		}
	}
	return free > 0 && x.byParty[e.Party()] <= free
}

// defaultWatchDelay is the longest time until watchAll sees a request: nearly all are
// answered before. If the client hangs up, the server learns of it that much later.
const defaultWatchDelay = 20 * time.Millisecond

// watchAll sets the timers of the exchanges that are still there, and has their clients
// watched. To do so for each request when it comes would cost more than it seems: a timer
// that is set often wakes a thread.
func (x *exchanges) watchAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := range x.unwatched {
		e.scheduleCommit()
		e.watch()
		x.watched[e] = struct{}{}
	}
	clear(x.unwatched)
}

// remove takes out an exchange that is over.
func (x *exchanges) remove(e *exchange) {
	x.mu.Lock()
	delete(x.unwatched, e)
	delete(x.watched, e)
	if x.byParty != nil {
		party := e.Party()
		if x.byParty[party]--; x.byParty[party] == 0 {
			delete(x.byParty, party)
		}
	}
	x.mu.Unlock()
	x.wg.Done()
}

// close ends the ctx of all exchanges with bridge.ErrClosing. From then on add lets none in.
func (x *exchanges) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, some := range [...]map[*exchange]struct{}{x.unwatched, x.watched} {
		for e := range some {
			e.cancel(bridge.ErrClosing)
		}
	}
}

// wait returns when all have left. Call it after close.
func (x *exchanges) wait() {
	x.wg.Wait()
	x.timer.Stop()
}
