package main

import (
	"runtime"
	"testing"
)

// garbage keeps the compiler from doing without it.
var garbage []byte

// collections returns how often the garbage collector runs for 64 MiB of garbage.
func collections() uint32 {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 << 10 {
		garbage = make([]byte, 1<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// With the ballast the garbage collector runs less than half as often.
func TestMemoryBallast(t *testing.T) {
	off := collections()
	ballast := newBallast()
	if on := collections(); on > off/2 {
		t.Errorf("the garbage collector runs %d times, and %d times without the ballast", on, off)
	}
	runtime.KeepAlive(ballast)
}
