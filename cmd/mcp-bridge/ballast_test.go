package main

import (
	"runtime"
	"testing"
)

// garbage keeps the compiler from doing without it.
var garbage []byte

const made = 64 << 20 // bytes of garbage

// collections returns how often the garbage collector runs for so much garbage.
func collections() uint32 {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range made >> 10 {
		garbage = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// With the ballast the garbage collector runs less often: not before there is as much garbage as ballast.
func TestMemoryBallast(t *testing.T) {
	off := collections()
	ballast := newBallast()
	if on := collections(); on >= off || on > made/ballastSize {
		t.Errorf("the garbage collector runs %d times, and %d times without the ballast", on, off)
	}
	runtime.KeepAlive(ballast)
}
