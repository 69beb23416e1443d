package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
)

// ballastSize is the size of newBallast's memory in bytes: so much more garbage may wait before Go collects it.
const ballastSize = 8 << 20

// newBallast returns memory that the garbage collector counts as used while it is kept alive. It is
// never touched, so that the system gives none for it.
//
// Go collects when there is as much garbage as memory in use, at 4 MiB at the earliest. A bridge
// uses about one, so that it would collect after every 400 calls, at 2 ms of processor time: a sixth
// of what a call costs. GOGC=200 would save as much, but would also take half as much memory again
// where there are many sessions or large messages.
func newBallast() []byte { return make([]byte, ballastSize) }

// With a ballast, the garbage of the first 1,600 calls goes into memory that the process has not used before. The system has to
// give it page by page, which in a virtual machine costs more than the collections that are saved. So garbage gets this memory only
// once the bridge is busy, which means that Go has collected busyCollections times within busyTime: after some 6,000 calls
// of 100 bytes, or 1,000 of 10 KB. Then Linux (5.14 and later) gives it at once.
const (
	calmGCPercent   = 35 // GOGC until the bridge is busy: with 9 MiB in use, 8 of them the ballast, Go collects after 3 MiB of garbage
	busyCollections = 10
	busyTime        = 15 * time.Second
	moreGarbage     = 6 << 20 // how many bytes more of garbage there are, once the bridge is busy, before Go collects
)

// collectOftenUntilBusy sets GOGC to calmGCPercent, waits until the bridge is busy or ctx is done, and sets GOGC to what it was.
// If GOGC was not 100, the user has chosen it: then nothing is waited for.
func collectOftenUntilBusy(ctx context.Context) {
	const defaultGCPercent = 100
	before := debug.SetGCPercent(calmGCPercent)
	busy := before == defaultGCPercent && awaitCollections(ctx, busyCollections, busyTime)
	debug.SetGCPercent(before)
	if busy {
		startpages.PopulateGarbage(moreGarbage) // now, because with calmGCPercent Go would soon return so much memory to the system
	}
}

// awaitCollections returns true once Go has collected garbage n times within d, and false when ctx is done.
func awaitCollections(ctx context.Context, n int, d time.Duration) bool {
	// Each collection finds an object that nothing refers to, and its cleanup says so. It never waits: there is one at a time.
	type object struct{ _ [16]byte }
	collected := make(chan time.Time, 1)
	var last []time.Time // when the last collections ended, n at most
	for {
		runtime.AddCleanup(new(object), func(collected chan<- time.Time) { collected <- time.Now() }, collected)
		select {
		case at := <-collected:
			last = append(last, at)
			if len(last) > n {
				last = last[1:]
			}
			if len(last) == n && at.Sub(last[0]) <= d {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
