package streamhttp

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// reply is the reply to one POST, written by whoever has something to say. A
// write that waits for the client can be broken off; nothing can be written
// after it, so that the client does not take half a reply for a whole one.
type reply struct {
	http.ResponseWriter
	begun bool // it has a status; its writers have a lock of their own

	mu      sync.Mutex // never held during a write
	writing bool
	writes  uint64          // begun
	watched <-chan struct{} // the end of a context, at which the write that is for it is broken off
	unwatch func() bool
	aborted bool
	left    bool // net/http goes on with the connection
}

// begin is called before something is written that may have to wait, and end
// afterwards. When ctx is done meanwhile, the write fails.
func (p *reply) begin(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// One context is mostly for all that is written: it is watched for good.
	if done := ctx.Done(); done != p.watched {
		p.forget()
		p.watched = done
		p.unwatch = context.AfterFunc(ctx, func() { p.abortFor(done) })
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.writing = true
	p.writes++
	return nil
}

func (p *reply) end() {
	p.mu.Lock()
	p.writing = false
	p.mu.Unlock()
}

// forget ends the watch; the caller holds the lock.
func (p *reply) forget() {
	if p.unwatch != nil {
		p.unwatch()
	}
}

// abortFor breaks off a write for the context that has ended so.
func (p *reply) abortFor(done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watched == done {
		p.abort()
	}
}

// aborter returns what breaks off the write that is going on now, for somebody
// who has to wait for it.
func (p *reply) aborter() func() {
	p.mu.Lock()
	now := p.writes
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.writes == now {
			p.abort()
		}
	}
}

// abort breaks off what is being written; the caller holds the lock.
func (p *reply) abort() {
	if p.writing && !p.left {
		p.aborted = true
		_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(longAgo)
	}
}

var longAgo = time.Unix(1, 0)

// SetWriteDeadline does so, unless the reply was broken off.
func (p *reply) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aborted {
		t = longAgo
	}
	return http.NewResponseController(p.ResponseWriter).SetWriteDeadline(t)
}

// WriteHeader begins the reply.
func (p *reply) WriteHeader(status int) {
	p.begun = true
	p.ResponseWriter.WriteHeader(status)
}

// Unwrap is for the http.ResponseController.
func (p *reply) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// flush sends on its way what net/http still keeps.
func (p *reply) flush(stall time.Duration) {
	if stall > 0 {
		_ = p.SetWriteDeadline(time.Now().Add(stall))
	}
	_ = http.NewResponseController(p.ResponseWriter).Flush()
	_ = p.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a silence, too
}

// leave leaves the reply to net/http.
func (p *reply) leave() {
	p.mu.Lock()
	p.forget()
	p.left = true
	p.mu.Unlock()
}

// exchanges are those in progress. The zero value has none.
type exchanges struct {
	mu     sync.Mutex
	fresh  map[*exchange]struct{} // those that lookAround has not seen
	seen   map[*exchange]struct{}
	shares map[string]int // how many each party has of them; nil: nobody needs to know
	closed bool
	look   *time.Timer    // calls lookAround; nil: it has seen all
	wg     sync.WaitGroup // one for each
	looks  sync.WaitGroup // for lookAround
}

// add enters e, whose time begins, or says why there is no place for it.
func (x *exchanges) add(e *exchange, max int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return bridge.ErrClosing
	case !x.hasRoom(e, max):
		return errTooManyCalls
	}
	if x.fresh == nil {
		x.fresh, x.seen = make(map[*exchange]struct{}), make(map[*exchange]struct{})
	}
	x.fresh[e] = struct{}{}
	if x.shares != nil {
		x.shares[e.Party()]++
	}
	x.wg.Add(1)
	e.came = time.Now()
	if x.look == nil {
		x.looks.Add(1)
		x.look = time.AfterFunc(min(lookAfter, e.h.opts.CommitModern), x.lookAround)
	}
	return nil
}

// hasRoom reports whether e may be one of max: a party may have no more than it
// leaves to others. Whose they are is counted from when half of them are there until
// three quarters are free: most requests never need to know. The caller holds the lock.
func (x *exchanges) hasRoom(e *exchange, max int) bool {
	free := max - len(x.fresh) - len(x.seen)
	if free > max-max/4 {
		x.shares = nil
	}
	if free > max/2 {
		return true
	}
	if x.shares == nil {
		x.shares = make(map[string]int)
		for _, some := range [...]map[*exchange]struct{}{x.fresh, x.seen} {
			for other := range some {
				x.shares[other.Party()]++
			}
		}
	}
	return free > 0 && x.shares[e.Party()] <= free
}

// lookAfter is how long a request is not looked after at most: nearly all are
// answered before. If the client hangs up the server learns that much later.
const lookAfter = 20 * time.Millisecond

// lookAround sets the timers of those that are still there, and has their clients
// watched. To do so for each request costs more than it seems: a timer that is set
// often wakes a thread.
func (x *exchanges) lookAround() {
	defer x.looks.Done()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.look = nil
	for e := range x.fresh {
		e.awaitCommit()
		e.watch()
		x.seen[e] = struct{}{}
	}
	clear(x.fresh)
}

func (x *exchanges) remove(e *exchange) {
	x.mu.Lock()
	delete(x.fresh, e)
	delete(x.seen, e)
	if x.shares != nil {
		party := e.Party()
		if x.shares[party]--; x.shares[party] == 0 {
			delete(x.shares, party)
		}
	}
	x.mu.Unlock()
	x.wg.Done()
}

// close lets nobody in any more, and tells all that are there.
func (x *exchanges) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, some := range [...]map[*exchange]struct{}{x.fresh, x.seen} {
		for e := range some {
			e.cancel(bridge.ErrClosing)
		}
	}
}

// wait returns when all have left. Call it after close.
func (x *exchanges) wait() {
	x.wg.Wait()
	x.mu.Lock()
	if x.look != nil && x.look.Stop() {
		x.looks.Done()
	}
	x.mu.Unlock()
	x.looks.Wait()
}
