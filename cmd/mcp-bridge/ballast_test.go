package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// roomForGarbage returns how much garbage there may be before the garbage collector has to be done
// again. How often it runs says less: on a busy machine it takes its time, and garbage that is made
// meanwhile does not make it run again.
func roomForGarbage() int {
	runtime.GC()
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64() - s[1].Value.Uint64())
}

// With the ballast the garbage collector runs less often: not before there is as much garbage as ballast.
func TestMemoryBallast(t *testing.T) {
	off := roomForGarbage()
	ballast := newBallast()
	if on := roomForGarbage(); on < ballastSize || on < off+ballastSize/2 {
		t.Errorf("there is room for %d bytes of garbage, and for %d without the ballast of %d", on, off, ballastSize)
	}
	runtime.KeepAlive(ballast)
}

// A bridge is busy when garbage has been collected often in a short time, and not before.
func TestAwaitCollections(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	often, seldom := make(chan bool, 1), make(chan bool, 1)
	go func() { often <- awaitCollections(ctx, 3, time.Hour) }()
	go func() { seldom <- awaitCollections(ctx, 3, time.Nanosecond) }()
	for collections := 0; ; collections++ {
		select {
		case <-often:
			if collections < 3 {
				t.Errorf("busy after %d collections", collections)
			}
			cancel()
			if <-seldom {
				t.Error("collections that are far apart make a bridge busy")
			}
			return
		default:
			runtime.GC()
		}
	}
}

func TestAwaitCollectionsEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if awaitCollections(ctx, 1<<30, time.Hour) {
		t.Error("busy without a collection")
	}
}

// gcPercent returns what GOGC is.
func gcPercent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

// Until it is busy, a bridge collects its garbage more often than GOGC says; then, and when it ends, GOGC is what it was.
func TestCollectOftenUntilBusy(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for _, ends := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); collectOftenUntilBusy(ctx) }()
		for gcPercent() != calmGCPercent {
			runtime.Gosched()
		}
		if ends {
			cancel()
			<-done
		}
		for busy := false; !busy; {
			select {
			case <-done:
				busy = true
			default:
				runtime.GC()
			}
		}
		cancel()
		if is := gcPercent(); is != 100 {
			t.Errorf("GOGC is %d afterwards", is)
		}
	}
	debug.SetGCPercent(50)
	collectOftenUntilBusy(t.Context())
	if is := gcPercent(); is != 50 {
		t.Errorf("the user's GOGC of 50 has become %d", is)
	}
}
