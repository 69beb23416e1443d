package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file bounds what a client of a Mux may leave unread, and says for how long
// a client is waited for whose queue is full (D.2).

const (
	// A client whose queue is full is waited for if it reads anything within
	// roomFirst, and then as long as it reads so much in each roomWait: nobody
	// else notices much of that.
	roomFirst    = 50 * time.Millisecond
	roomWait     = 250 * time.Millisecond
	roomMessages = 1000
	roomBytes    = 1 << 20

	// roomMost is for how long in a row others with calls in progress have to wait
	// with it. Time in which it is not waited for counts back.
	roomMost = 5 * time.Second
)

// room is what a conn knows of the room in its queue; under conn.mu.
type room struct {
	read  progress // what the client has read
	waits *waits   // nil: the queue was never half full
}

// progress is what a client has read.
type progress struct{ messages, bytes int }

// isEnough reports whether a client has read as much as it has to in order to be
// waited for again; deaf: it had read nothing before that.
func (p progress) isEnough(deaf bool) bool {
	if deaf {
		return p != progress{}
	}
	return p.messages >= roomMessages || p.bytes >= roomBytes
}

// waits are for those who wait for room in one client's queue: one at a time, for
// each measures what the client reads meanwhile. Most clients never need them.
type waits struct {
	turn chan struct{} // holds one element while somebody waits
	free chan struct{} // holds one element when there may be room again

	// Under conn.mu.
	armed bool     // free will tell: the queue is half full, or somebody waits
	want  int      // size of the largest message that is waited with; 0: none is
	since progress // what the client had read when armed was set, or somebody last looked

	// For whose turn it is.
	spent time.Duration // for how long others had to wait, less the time since
	last  time.Time     // when that was
}

// put queues a message; false: there is no room for it. Then free will tell when
// there is.
func (c *conn) put(call *call, m jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.full(m.Size()) {
		c.arm(m.Size())
		return false
	}
	c.enqueue(call, m)
	return true
}

// putLast queues the last that there is to say about a call, which nobody can wait
// with. There is room for it where push would have to wait: as much again, and for
// all calls that a client may have. false: there is not, so the client reads nothing.
func (c *conn) putLast(call *call, m jsonrpc.Message) bool {
	o := &c.mux.opts
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && (c.items.Len() >= o.Queue+2*maxCalls || c.items.Len() > 0 && c.bytes > 2*o.QueueBytes) {
		return false
	}
	c.enqueue(call, m)
	return true
}

// enqueue puts a message into the queue, unless the client has gone, and so has
// whoever waited. It is called with c.mu held.
func (c *conn) enqueue(call *call, m jsonrpc.Message) {
	if c.err != nil {
		return
	}
	c.items.Push(item{call, m})
	c.bytes += m.Size()
	if c.isHalf() {
		c.arm(0)
	}
}

// dequeue takes the first message out of the queue. It is called with c.mu held.
func (c *conn) dequeue() item {
	it := c.items.Pop()
	size := it.m.Size()
	c.bytes -= size
	r := &c.room
	r.read.messages++
	r.read.bytes += size
	if w := r.waits; w != nil && w.armed && !c.isHalf() && !c.full(w.want) {
		w.armed, w.want = false, 0
		signal(w.free)
	}
	return it
}

// full reports whether the queue has no room for so many bytes. It is called
// with c.mu held.
func (c *conn) full(size int) bool {
	o := &c.mux.opts
	return c.items.Len() >= o.Queue || c.items.Len() > 0 && c.bytes+size > o.QueueBytes
}

// isHalf reports whether the queue is half full. It is called with c.mu held.
func (c *conn) isHalf() bool {
	o := &c.mux.opts
	return c.items.Len() > o.Queue/2 || c.bytes > o.QueueBytes/2
}

// arm makes free tell when the queue is half empty, and a message of so many
// bytes fits as well. It is called with c.mu held.
func (c *conn) arm(want int) {
	if c.room.waits == nil {
		c.room.waits = &waits{turn: make(chan struct{}, 1), free: make(chan struct{}, 1)}
	}
	w := c.room.waits
	w.want = max(w.want, want)
	if !w.armed {
		w.armed, w.since = true, c.room.read
	}
}

// lacksRoom reports whether there is no room for a message; then free will tell
// when there is.
func (c *conn) lacksRoom(m jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || !c.full(m.Size()) {
		return false
	}
	c.arm(m.Size())
	return true
}

// makeRoom waits until there is room for a message. A client that reads too slowly
// for that is ended, with ErrSlow. false: the client has gone. No lock is held.
func (c *conn) makeRoom(m jsonrpc.Message) bool {
	if !c.lacksRoom(m) {
		return true
	}
	err := c.awaitRoom(m)
	if err == bridge.ErrSlow {
		c.mux.drop(m, bridge.ErrSlow.Error())
		c.end(bridge.ErrSlow)
	}
	return err == nil
}

// awaitRoom is makeRoom for a client that is not ended for it. Only one goroutine
// at a time waits, and those that come after it for that one.
func (c *conn) awaitRoom(m jsonrpc.Message) error {
	w, done := c.waiting(), c.doneChan()
	select {
	case w.turn <- struct{}{}:
	case <-done:
		return c.ended()
	}
	defer func() { <-w.turn }()
	began := time.Now()
	rest := began.Sub(w.last) // since somebody was waiting
	w.spent = max(0, w.spent-rest)
	deaf := c.progressed() == progress{} && rest > roomWait
	window := time.NewTimer(roomWait)
	defer window.Stop()
	if deaf {
		window.Reset(roomFirst)
	}
	for c.lacksRoom(m) {
		look := false
		select {
		case <-w.free:
		case <-done:
			return c.ended()
		case <-window.C:
			look = true
		}
		now := time.Now()
		if c.mux.keepsOthers(c) {
			w.spent += now.Sub(began)
		}
		began, w.last = now, now
		switch {
		case w.spent >= roomMost:
			return bridge.ErrSlow
		case look && !c.progressed().isEnough(deaf):
			return bridge.ErrSlow
		case look:
			deaf = false
			window.Reset(roomWait)
		}
	}
	return c.ended()
}

// waiting returns what those have in common who wait for room, after lacksRoom.
func (c *conn) waiting() *waits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room.waits
}

// progressed returns what the client has read since somebody last looked, or the
// queue was half full.
func (c *conn) progressed() progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	read, since := c.room.read, c.room.waits.since
	c.room.waits.since = read
	return progress{read.messages - since.messages, read.bytes - since.bytes}
}

// keepsOthers reports whether others than c have calls in progress, and may so have
// to wait with whoever waits for c.
func (x *Mux) keepsOthers(c *conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	others := len(x.calls) - x.listens
	for call := range c.calls.all() {
		if call.listen == nil {
			others--
		}
	}
	return others > 0
}
