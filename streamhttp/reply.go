package streamhttp

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// reply is the reply to one POST, written by whoever has something to say. A
// write that waits for the client can be broken off; nothing can be written
// after it, so that the client does not take half a reply for a whole one.
type reply struct {
	http.ResponseWriter
	begun bool // the reply has its status; guarded by exchange.mu

	mu           sync.Mutex      // guards what follows; never held during a write
	writing      bool            // a write goes on: beginWrite was called, and endWrite was not
	writes       uint64          // how many writes have begun: by it aborter tells the write that goes on from later ones
	watchedDone  <-chan struct{} // Done of the context at whose end a write is broken off; nil: of none
	unwatch      func() bool     // ends the watch over the context of watchedDone; nil: there was none
	aborted      bool            // a write was broken off: nothing can be written any more
	releasedConn bool            // net/http goes on with the connection: no write is broken off any more
}

// beginWrite is called before something is written that may have to wait, and endWrite
// afterwards. When ctx is done meanwhile, the write fails.
func (p *reply) beginWrite(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// One context is mostly for all that is written: it is watched for good.
	if done := ctx.Done(); done != p.watchedDone {
		p.stopWatching()
		p.watchedDone = done
		p.unwatch = context.AfterFunc(ctx, func() { p.abortFor(done) })
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.writing = true
	p.writes++
	return nil
}

// endWrite is called after a write that beginWrite has announced.
func (p *reply) endWrite() {
	p.mu.Lock()
	p.writing = false
	p.mu.Unlock()
}

// stopWatching ends the watch over the context of the last write; the caller holds the lock.
func (p *reply) stopWatching() {
	if p.unwatch != nil {
		p.unwatch()
	}
}

// abortFor breaks off the write that goes on, if it is for the context with this Done, which has ended.
func (p *reply) abortFor(done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchedDone == done {
		p.abort()
	}
}

// aborter returns a function that breaks off the write that is going on now, but none that
// comes later. It is for somebody who has to wait for that write.
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

// abort breaks off the write that goes on, if one does; the caller holds the lock.
func (p *reply) abort() {
	if p.writing && !p.releasedConn {
		p.aborted = true
		_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(longAgo)
	}
}

// longAgo is a write deadline that has passed, which breaks off a write.
var longAgo = time.Unix(1, 0)

// SetWriteDeadline sets the deadline for writes to the client; the http.ResponseController calls it.
// Once a write was broken off, the deadline stays in the past.
func (p *reply) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aborted {
		t = longAgo
	}
	return http.NewResponseController(p.ResponseWriter).SetWriteDeadline(t)
}

// WriteHeader begins the reply with this HTTP status.
func (p *reply) WriteHeader(status int) {
	p.begun = true
	p.ResponseWriter.WriteHeader(status)
}

// Unwrap returns net/http's ResponseWriter, for the http.ResponseController.
func (p *reply) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// flush sends on its way what net/http still keeps. The client has stall for that; 0 or less: any time.
func (p *reply) flush(stall time.Duration) {
	if stall > 0 {
		_ = p.SetWriteDeadline(time.Now().Add(stall))
	}
	_ = http.NewResponseController(p.ResponseWriter).Flush()
	_ = p.SetWriteDeadline(time.Time{}) // over HTTP/2 it would end a silence, too
}

// releaseConn leaves the connection to net/http: no context breaks off a write any more.
func (p *reply) releaseConn() {
	p.mu.Lock()
	p.stopWatching()
	p.releasedConn = true
	p.mu.Unlock()
}
