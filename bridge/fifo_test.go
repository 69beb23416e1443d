package bridge

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fifo is a queue, and its memory does not grow with what has gone through it.
func TestFIFO(t *testing.T) {
	var f fifo[*int]
	var want []*int
	for i := range 100_000 {
		if rand.IntN(2) == 0 || i%1000 < 30 {
			more := make([]*int, rand.IntN(3))
			for i := range more {
				more[i] = new(int)
			}
			f.push(more...)
			want = append(want, more...)
		} else if len(want) > 0 {
			if got := f.pop(); got != want[0] {
				t.Fatal("another element than was put in first")
			}
			want = want[1:]
		}
		if f.len() != len(want) || !slices.Equal(f.rest(), want) {
			t.Fatalf("%d elements, want %d", f.len(), len(want))
		}
		for _, gone := range f.all[:f.head] {
			if gone != nil {
				t.Fatal("what was taken out is kept")
			}
		}
		if cap(f.all) > 4*max(len(want), fifoKept) && f.len() == 0 {
			t.Fatalf("memory for %d elements, and it is empty", cap(f.all))
		}
	}
	one := func() { f.push(nil); f.pop() }
	for f.len() > 0 {
		f.pop()
	}
	one()
	if n := testing.AllocsPerRun(100, one); n > 0 {
		t.Errorf("%v allocations for an element", n)
	}
}

// A fifo that is never empty stays as small as what is in it.
func TestFIFONeverEmpty(t *testing.T) {
	var f fifo[int]
	f.push(1, 2, 3)
	for i := range 10_000 {
		f.push(i)
		f.pop()
	}
	if cap(f.all) > fifoKept {
		t.Errorf("memory for %d elements, and there are 3", cap(f.all))
	}
	for i := range 10_000 {
		f.push(i)
	}
	for f.len() > 3 {
		f.pop()
	}
	for i := range 20_000 {
		f.push(i)
		f.pop()
	}
	if cap(f.all) > 4*fifoKept {
		t.Errorf("memory for %d elements, and there are 3 again", cap(f.all))
	}
}
