package mux

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file bounds what a client of a Mux may leave unread, and says for how long
// a client is waited for whose inbox is full (D.2).

const (
	// firstReadWindow is how long a client that had read nothing before may take to read anything, once somebody waits
	// for room in its full inbox.
	firstReadWindow = 50 * time.Millisecond
	// readWindow is the time in which a client whose inbox is full must read enoughReadMessages or enoughReadBytes,
	// again and again, to be waited for: nobody else notices much of that.
	readWindow         = 250 * time.Millisecond
	enoughReadMessages = 1000    // how many messages are enough to read in a readWindow
	enoughReadBytes    = 1 << 20 // how many bytes are enough to read in a readWindow, however few messages

	// maxHoldUp is for how long others with calls in progress may have to wait for one client; then it is ended. Time
	// in which nobody waits for it is subtracted.
	maxHoldUp = 5 * time.Second
)

// hasReadEnough reports whether a client that has read so much in a window is waited for longer; stalled: the window
// was firstReadWindow, in which anything is enough.
func hasReadEnough(read bridge.Load, stalled bool) bool {
	if stalled {
		return read != bridge.Load{}
	}
	return read.Messages >= enoughReadMessages || read.Bytes >= enoughReadBytes
}

// roomWait is for those who wait for room in one client's inbox. One of them at a time measures what the client reads
// meanwhile. Most clients never need a roomWait.
type roomWait struct {
	turn chan struct{} // a lock: holds one element while somebody waits and measures
	free chan struct{} // holds one element when there may be room again

	wantedSize int         // bytes of the largest message that somebody could not put in; 0: there is none. Under conn.mu
	readBefore bridge.Load // what the client had read in all when watchRoom began to watch, or at the last look. Under conn.mu

	othersWaited   time.Duration // for how long others had to wait for this client, less the time since. For whoever has the turn
	othersWaitedAt time.Time     // when othersWaited was last counted. For whoever has the turn
}

// tryEnqueue puts a message about call (nil: about none) into the inbox, but does not wake the client. If the Conn has
// ended, or the call was cancelled, it drops the message and returns true (enqueue). false: there is no room for it; then
// roomWait.free will tell when there is.
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

// enqueueLast puts the last message about a call into the inbox, with which nobody can wait. There is room for it
// beyond what isFull says: for as many bytes again, and for two messages for each call that a client may have. false:
// there is none even so, for the client reads nothing.
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

// enqueue puts a message about call (nil: about none) into the inbox, in which waiting waits already. If the Conn has
// ended, or the call was cancelled, it drops the message (J12). It is called with c.mu held.
func (c *conn) enqueue(call *call, m jsonrpc.Message, waiting bridge.Load) {
	if c.err != nil || call != nil && call.cancelled.Load() {
		return
	}
	c.inbox.Add(m) // drops it once the end was announced (endWhenDelivered)
	waiting.Messages++
	waiting.Bytes += m.Size()
	if c.isHalfFull(waiting) {
		c.watchRoom(0)
	}
}

// isFull reports whether an inbox in which waiting waits has no room for a message of size bytes.
func (c *conn) isFull(waiting bridge.Load, size int) bool {
	o := &c.mux.opts
	return waiting.Messages >= o.MaxUnread || waiting.Messages > 0 && waiting.Bytes+size > o.MaxUnreadBytes
}

// isHalfFull reports whether an inbox in which waiting waits is at least half full.
func (c *conn) isHalfFull(waiting bridge.Load) bool {
	o := &c.mux.opts
	return waiting.Messages > o.MaxUnread/2 || waiting.Bytes > o.MaxUnreadBytes/2
}

// watchRoom has roomWait.free tell when the inbox is half empty and a message of want bytes has room. It is called
// with c.mu held.
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

// lacksRoom reports whether the inbox has no room for a message; then roomWait.free will tell when there is. false,
// too, once the Conn has ended.
func (c *conn) lacksRoom(m jsonrpc.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || !c.isFull(c.inbox.Waiting(), m.Size()) {
		return false
	}
	c.watchRoom(m.Size())
	return true
}

// awaitRoomOrEnd waits until the inbox has room for a message. If the client reads too slowly for that, it ends the
// Conn, with ErrSlow. false: the Conn has ended. No lock is held.
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

// awaitRoom waits until the inbox has room for a message, and returns why the Conn has ended, or nil. If the client
// reads too slowly it returns ErrSlow. Only one goroutine at a time measures that; the others wait until it has done
// so.
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

// sharedRoomWait returns c.roomWait, which must have been made (lacksRoom).
func (c *conn) sharedRoomWait() *roomWait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roomWait
}

// readSinceLook returns how much the client has read since the last call of readSinceLook, or since watchRoom began to
// watch.
func (c *conn) readSinceLook() bridge.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	read, since := c.inbox.Taken(), c.roomWait.readBefore
	c.roomWait.readBefore = read
	return bridge.Load{Messages: read.Messages - since.Messages, Bytes: read.Bytes - since.Bytes}
}

// othersHaveCalls reports whether others than c have calls in progress, subscriptions not counted: they wait, too,
// while the server's reader waits for c's client.
func (x *Mux) othersHaveCalls(c *conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ledger.othersHaveCalls(c)
}
