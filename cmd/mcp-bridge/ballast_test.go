package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
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
