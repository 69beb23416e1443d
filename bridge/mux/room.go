package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file bounds what a client of a Mux may leave unread, and says for how long
// a client is waited for whose inbox is full (D.2).

const (
	// A client whose inbox is full is waited for if it reads anything within
	// firstReadWindow, and then as long as it reads so much in each readWindow: nobody
	// else notices much of that.
	firstReadWindow    = 50 * time.Millisecond
	readWindow         = 250 * time.Millisecond
	enoughReadMessages = 1000
	enoughReadBytes    = 1 << 20

	// maxHoldUp is for how long in a row others with calls in progress have to wait
	// with it. Time in which it is not waited for counts back.
	maxHoldUp = 5 * time.Second
)

// hasReadEnough reports whether a client that has read so much has read what it has to in
// order to be waited for again; stalled: it had read nothing before that.
func hasReadEnough(read bridge.Load, stalled bool) bool {
	if stalled {
		return read != bridge.Load{}
	}
	return read.Messages >= enoughReadMessages || read.Bytes >= enoughReadBytes
}

// roomWait is for those who wait for room in one client's inbox: one at a time, for
// each measures what the client reads meanwhile. Most clients never need them.
type roomWait struct {
	turn chan struct{} // holds one element while somebody waits
	free chan struct{} // holds one element when there may be room again

	// Under conn.mu.
	wantedSize int         // size of the largest message that is waited with; 0: none is
	readBefore bridge.Load // what the client had read when free was asked for, or somebody last looked

	// For whose turn it is.
	othersWaited   time.Duration // for how long others had to wait, less the time since
	othersWaitedAt time.Time     // when that was
}

// tryEnqueue queues a message; false: there is no room for it. Then free will tell when
// there is.
func (c *conn) tryEnqueue(call *call, m jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.inbox.Waiting()
	if c.err == nil && c.isFull(waiting, m.Size()) {
		c.watchRoom(m.Size())
		return false
	}
	c.enqueue(call, m, waiting)
	return true
}

// enqueueLast queues the last that there is to say about a call, which nobody can wait
// with. There is room for it where pushOrEndClient would have to wait: as much again, and for
// all calls that a client may have. false: there is not, so the client reads nothing.
func (c *conn) enqueueLast(call *call, m jsonrpc.Message) bool {
	o := &c.mux.opts
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.inbox.Waiting()
	if c.err == nil && (waiting.Messages >= o.MaxUnread+2*maxCalls || waiting.Messages > 0 && waiting.Bytes > 2*o.MaxUnreadBytes) {
		return false
	}
	c.enqueue(call, m, waiting)
	return true
}

// enqueue puts a message into the inbox, where so much waits, unless the client has gone,
// and so has whoever waited, or has cancelled the call (J12). It is called with c.mu held.
func (c *conn) enqueue(call *call, m jsonrpc.Message, waiting bridge.Load) {
	if c.err != nil || call != nil && call.cancelled.Load() {
		return
	}
	c.inbox.Add(m) // or its end was announced
	waiting.Messages++
	waiting.Bytes += m.Size()
	if c.isHalfFull(waiting) {
		c.watchRoom(0)
	}
}

// isFull reports whether an inbox in which so much waits has no room for so many bytes.
func (c *conn) isFull(waiting bridge.Load, size int) bool {
	o := &c.mux.opts
	return waiting.Messages >= o.MaxUnread || waiting.Messages > 0 && waiting.Bytes+size > o.MaxUnreadBytes
}

// isHalfFull reports whether an inbox in which so much waits is half full.
func (c *conn) isHalfFull(waiting bridge.Load) bool {
	o := &c.mux.opts
	return waiting.Messages > o.MaxUnread/2 || waiting.Bytes > o.MaxUnreadBytes/2
}

// watchRoom makes free tell when the inbox is half empty, and a message of so many
// bytes fits as well. It is called with c.mu held.
func (c *conn) watchRoom(want int) {
	if c.roomWait == nil {
		c.roomWait = &roomWait{turn: make(chan struct{}, 1), free: make(chan struct{}, 1)}
	}
	w, o := c.roomWait, &c.mux.opts
	if !c.inbox.IsNotifying() { // what was waited with before fits by now
		w.wantedSize, w.readBefore = 0, c.inbox.Taken()
	}
	w.wantedSize = max(w.wantedSize, want)
	c.inbox.NotifyBelow(bridge.Load{Messages: o.MaxUnread / 2, Bytes: min(o.MaxUnreadBytes/2, o.MaxUnreadBytes-w.wantedSize)}, w.free)
}

// lacksRoom reports whether there is no room for a message; then free will tell
// when there is.
func (c *conn) lacksRoom(m jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || !c.isFull(c.inbox.Waiting(), m.Size()) {
		return false
	}
	c.watchRoom(m.Size())
	return true
}

// awaitRoomOrEnd waits until there is room for a message. A client that reads too slowly
// for that is ended, with ErrSlow. false: the client has gone. No lock is held.
func (c *conn) awaitRoomOrEnd(m jsonrpc.Message) bool {
	if !c.lacksRoom(m) {
		return true
	}
	err := c.awaitRoom(m)
	if err == bridge.ErrSlow {
		c.mux.reportDropped(m, bridge.ErrSlow.Error())
		c.end(bridge.ErrSlow)
	}
	return err == nil
}

// awaitRoom is awaitRoomOrEnd for a client that is not ended for it. Only one goroutine
// at a time waits, and those that come after it for that one.
func (c *conn) awaitRoom(m jsonrpc.Message) error {
	w, done := c.sharedRoomWait(), c.doneChan()
	select {
	case w.turn <- struct{}{}:
	case <-done:
		return c.ended()
	}
	defer func() { <-w.turn }()
	began := time.Now()
	rest := began.Sub(w.othersWaitedAt) // since somebody was waiting
	w.othersWaited = max(0, w.othersWaited-rest)
	stalled := c.readSinceLook() == bridge.Load{} && rest > readWindow
	window := time.NewTimer(readWindow)
	defer window.Stop()
	if stalled {
		window.Reset(firstReadWindow)
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
		if c.mux.othersHaveCalls(c) {
			w.othersWaited += now.Sub(began)
		}
		began, w.othersWaitedAt = now, now
		switch {
		case w.othersWaited >= maxHoldUp:
			return bridge.ErrSlow
		case look && !hasReadEnough(c.readSinceLook(), stalled):
			return bridge.ErrSlow
		case look:
			stalled = false
			window.Reset(readWindow)
		}
	}
	return c.ended()
}

// sharedRoomWait returns what those have in common who wait for room, after lacksRoom.
func (c *conn) sharedRoomWait() *roomWait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomWait
}

// readSinceLook returns what the client has read since somebody last looked, or free was
// asked for.
func (c *conn) readSinceLook() bridge.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	read, since := c.inbox.Taken(), c.roomWait.readBefore
	c.roomWait.readBefore = read
	return bridge.Load{Messages: read.Messages - since.Messages, Bytes: read.Bytes - since.Bytes}
}

// othersHaveCalls reports whether others than c have calls in progress, which would
// have to wait together with c's.
func (x *Mux) othersHaveCalls(c *conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ledger.othersHaveCalls(c)
}
