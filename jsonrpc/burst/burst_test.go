package burst

import (
	"sync"
	"testing"
)

// counter is a Keeper that counts how often it was told to write.
type counter struct{ written int }

func (c *counter) WriteKept() { c.written++ }

func TestBurst(t *testing.T) {
	var b Burst
	var first, second counter
	want := func(what string, f, s int) {
		t.Helper()
		if first.written != f || second.written != s {
			t.Errorf("%s: the Keepers were told %d and %d times to write, want %d and %d", what, first.written, second.written, f, s)
		}
	}
	if b.Keep(&first) || b.Going() {
		t.Error("something is kept back before Begin")
	}
	b.End()
	want("an End without a Begin", 0, 0)

	b.Begin()
	b.Begin()
	if !b.Going() || !b.Keep(&first) || !b.Keep(&first) || !b.Keep(&second) {
		t.Error("nothing is kept back after Begin")
	}
	want("before End", 0, 0)
	b.End()
	want("End", 1, 1)
	if b.Keep(&first) || b.Going() {
		t.Error("something is kept back after End")
	}

	b.Begin()
	b.Keep(&second)
	b.End()
	b.End()
	want("the second End", 1, 2)

	if (*Burst)(nil).Keep(&first) {
		t.Error("something is kept back without a Burst")
	}
	(*Burst)(nil).End()
}

func TestManyKeepers(t *testing.T) {
	var b Burst
	b.Begin()
	keepers := make([]counter, maxKeepers+1)
	for i := range keepers {
		if b.Keep(&keepers[i]) != (i < maxKeepers) {
			t.Errorf("Keeper %d of %d may keep back: %v", i+1, maxKeepers, i >= maxKeepers)
		}
	}
	if !b.Keep(&keepers[0]) {
		t.Error("a Keeper that is known already counts twice")
	}
	b.End()
	for i, h := range keepers {
		if h.written == 1 != (i < maxKeepers) {
			t.Errorf("Keeper %d was told %d times to write", i+1, h.written)
		}
	}
}

// What is kept back of many messages is written before all of them were handed on, and the Burst goes on.
func TestManyMessages(t *testing.T) {
	var b Burst
	var k counter
	const n = 2*maxMessages + 1
	for i := range n {
		b.Begin()
		if !b.Keep(&k) {
			t.Errorf("nothing is kept back of message %d", i+1)
		}
	}
	if k.written != 2 {
		t.Errorf("of %d messages, something was written %d times", n, k.written)
	}
}

// lockedCounter is a Keeper that counts what it keeps back.
type lockedCounter struct {
	mu   sync.Mutex
	kept int
}

func (c *lockedCounter) WriteKept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = 0
}

// Whatever is kept back while another goroutine calls End is written.
func TestKeepWhileItEnds(t *testing.T) {
	var b Burst
	var keepers [3]lockedCounter
	var wg sync.WaitGroup
	for i := range keepers {
		wg.Go(func() {
			h := &keepers[i]
			for range 10_000 {
				h.mu.Lock()
				h.kept++
				h.mu.Unlock()
				if !b.Keep(h) {
					h.WriteKept()
				}
			}
		})
	}
	for range 2 { // any goroutine may do this
		wg.Go(func() {
			for range 10_000 {
				b.Begin()
				b.End()
			}
		})
	}
	wg.Wait()
	b.End()
	for i := range keepers {
		if keepers[i].kept > 0 {
			t.Errorf("Keeper %d keeps %d back for ever", i, keepers[i].kept)
		}
	}
}
