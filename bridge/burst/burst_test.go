package burst

import (
	"sync"
	"testing"
)

// counter is a Holder that counts how often it was told to write.
type counter struct{ written int }

func (c *counter) WriteHeld() { c.written++ }

func TestBurst(t *testing.T) {
	var b Burst
	var first, second counter
	want := func(what string, f, s int) {
		t.Helper()
		if first.written != f || second.written != s {
			t.Errorf("%s: the Holders were told %d and %d times to write, want %d and %d", what, first.written, second.written, f, s)
		}
	}
	if b.Hold(&first) || b.Going() {
		t.Error("something is kept back before Begin")
	}
	b.End()
	want("an End without a Begin", 0, 0)

	b.Begin()
	b.Begin()
	if !b.Going() || !b.Hold(&first) || !b.Hold(&first) || !b.Hold(&second) {
		t.Error("nothing is kept back after Begin")
	}
	want("before End", 0, 0)
	b.End()
	want("End", 1, 1)
	if b.Hold(&first) || b.Going() {
		t.Error("something is kept back after End")
	}

	b.Begin()
	b.Hold(&second)
	b.End()
	b.End()
	want("the second End", 1, 2)

	if (*Burst)(nil).Hold(&first) {
		t.Error("something is kept back without a Burst")
	}
	(*Burst)(nil).End()
}

func TestManyHolders(t *testing.T) {
	var b Burst
	b.Begin()
	holders := make([]counter, maxHolders+1)
	for i := range holders {
		if b.Hold(&holders[i]) != (i < maxHolders) {
			t.Errorf("Holder %d of %d may keep back: %v", i+1, maxHolders, i >= maxHolders)
		}
	}
	if !b.Hold(&holders[0]) {
		t.Error("a Holder that is known already counts twice")
	}
	b.End()
	for i, h := range holders {
		if h.written == 1 != (i < maxHolders) {
			t.Errorf("Holder %d was told %d times to write", i+1, h.written)
		}
	}
}

// lockedCounter is a Holder that notes whether something is kept back.
type lockedCounter struct {
	mu   sync.Mutex
	held int
}

func (c *lockedCounter) WriteHeld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = 0
}

// Whatever is kept back while another goroutine calls End is written.
func TestHoldWhileItEnds(t *testing.T) {
	var b Burst
	var holders [3]lockedCounter
	var wg sync.WaitGroup
	for i := range holders {
		wg.Go(func() {
			h := &holders[i]
			for range 10_000 {
				h.mu.Lock()
				if b.Hold(h) {
					h.held++
				}
				h.mu.Unlock()
			}
		})
	}
	for range 10_000 {
		b.Begin()
		b.End()
	}
	wg.Wait()
	for i := range holders {
		if holders[i].held > 0 {
			t.Errorf("Holder %d keeps %d back for ever", i, holders[i].held)
		}
	}
}
