package stdio

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A peer is dead when it has acknowledged nothing since the timer was set,
// although something was sent; one that is slow, or has nothing to acknowledge, is not.
func TestDeadPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var acked, dead atomic.Int64 // durations since start
		var waiting atomic.Bool
		since := func() time.Duration { return time.Since(start) }
		d := newDeadPeerWatch(nil, func() { dead.Store(int64(since())) }, func(net.Conn) (time.Duration, bool) {
			return since() - time.Duration(acked.Load()), waiting.Load()
		})

		time.Sleep(10 * time.Minute) // idle, and nobody looks
		d.noteSending()
		time.Sleep(2 * deadAfter) // it was acknowledged, however long ago
		d.noteSending()
		waiting.Store(true)
		for range 30 { // a slow peer
			time.Sleep(10 * time.Second)
			acked.Store(int64(since()))
			d.noteSending()
		}
		if dead := time.Duration(dead.Load()); dead != 0 {
			t.Fatalf("taken for dead after %v", dead)
		}
		silentSince := since()
		time.Sleep(2 * deadAfter)
		if dead := time.Duration(dead.Load()); dead < silentSince+deadAfter || dead > silentSince+2*deadAfter {
			t.Errorf("silent since %v and found after %v", silentSince, dead)
		}
		d.noteSending()
		d.stop()
	})
}

// The end of the watch is the end of its timer.
func TestDeadPeerStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeadPeerWatch(nil, func() { t.Error("found") }, func(net.Conn) (time.Duration, bool) { return time.Hour, true })
		d.noteSending()
		d.stop()
		d.noteSending()
		time.Sleep(time.Hour)
	})
}

// What the system says of a peer that is alive, whether it reads or not.
func TestAwaitingAck(t *testing.T) {
	c, peer := connected(t, "tcp")
	nc := c.(*socketConn).nc
	if c.(*socketConn).peerWatch == nil {
		t.Fatal("the connection is not watched")
	}
	for err := error(nil); err == nil; {
		nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // of each write: all of them may take longer
		_, err = nc.Write(make([]byte, 64<<10))                     // until nothing fits any more
	}
	silent, waiting := awaitingAck(nc)
	if silent > deadAfter/2 || waiting != (runtime.GOOS == "linux") {
		t.Errorf("of a peer that does not read: silent for %v, waiting %v", silent, waiting)
	}
	peer.Close()
	c.Close(nil)
	if _, waiting := awaitingAck(nc); waiting {
		t.Error("something waits on a closed connection")
	}
}
