package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fifo is a queue, and its memory does not grow with what has gone through it.
func TestFIFO(t *testing.T) {
	var f Queue[*int]
	var want []*int
	for i := range 100_000 {
		if rand.IntN(2) == 0 || i%1000 < 30 {
			more := make([]*int, rand.IntN(3))
			for i := range more {
				more[i] = new(int)
			}
			f.Push(more...)
			want = append(want, more...)
		} else if len(want) > 0 {
			if got := f.Pop(); got != want[0] {
				t.Fatal("another element than was put in first")
			}
			want = want[1:]
		}
		if f.Len() != len(want) || !slices.Equal(f.Rest(), want) {
			t.Fatalf("%d elements, want %d", f.Len(), len(want))
		}
		for _, gone := range f.all[:f.head] {
			if gone != nil {
				t.Fatal("what was taken out is kept")
			}
		}
		if cap(f.all) > 4*max(len(want), KeptCapacity) && f.Len() == 0 {
			t.Fatalf("memory for %d elements, and it is empty", cap(f.all))
		}
	}
	one := func() { f.Push(nil); f.Pop() }
	for f.Len() > 0 {
		f.Pop()
	}
	one()
	if n := testing.AllocsPerRun(100, one); n > 0 {
		t.Errorf("%v allocations for an element", n)
	}
}

// The memory that a fifo has grown out of keeps none of the elements.
func TestFIFOLeavesMemory(t *testing.T) {
	for name, grow := range map[string]func(f *Queue[*int]){
		"Push":      func(f *Queue[*int]) { f.Push(new(int)) },
		"PushFront": func(f *Queue[*int]) { f.PushFront(new(int)) },
	} {
		memory := make([]*int, 2)
		f := New(memory)
		f.Push(new(int), new(int))
		grow(&f)
		if f.Len() != 3 || slices.Contains(f.Rest(), nil) || memory[0] != nil || memory[1] != nil {
			t.Errorf("%s: %v in the queue, %v in the memory of before", name, f.Rest(), memory)
		}
	}
}

// A fifo that is never empty stays as small as what is in it.
func TestFIFONeverEmpty(t *testing.T) {
	var f Queue[int]
	f.Push(1, 2, 3)
	for i := range 10_000 {
		f.Push(i)
		f.Pop()
	}
	if cap(f.all) > KeptCapacity {
		t.Errorf("memory for %d elements, and there are 3", cap(f.all))
	}
	for i := range 10_000 {
		f.Push(i)
	}
	for f.Len() > 3 {
		f.Pop()
	}
	for i := range 20_000 {
		f.Push(i)
		f.Pop()
	}
	if cap(f.all) > 4*KeptCapacity {
		t.Errorf("memory for %d elements, and there are 3 again", cap(f.all))
	}
}
