// Package fifo is a queue in memory that is used again.
package fifo

import "slices"

// KeptCapacity is how many elements the memory may have room for that an empty Queue keeps; larger memory is let go
// of.
const KeptCapacity = 16

// A Queue hands out first what was put in first. The zero Queue is empty.
type Queue[T any] struct {
	all  []T // its memory, up to the last element; before head it is not used
	head int // the index in all of the first element
}

// New returns an empty Queue that uses memory, which is then its own, until that is full.
func New[T any](memory []T) Queue[T] { return Queue[T]{all: memory[:0]} }

// Len returns how many elements are in the queue.
func (f *Queue[T]) Len() int { return len(f.all) - f.head }

// Cap returns how many elements its memory has room for.
func (f *Queue[T]) Cap() int { return cap(f.all) }

// Rest returns the elements, in order, without taking them out. They are valid until the next change of the Queue.
func (f *Queue[T]) Rest() []T { return f.all[f.head:] }

// Push appends elements at the end.
func (f *Queue[T]) Push(more ...T) {
	if len(f.all)+len(more) > cap(f.all) && f.head >= f.Len() { // in place of growing
		if cap(f.all) > 4*max(f.Len(), KeptCapacity) {
			*f = Queue[T]{all: slices.Clone(f.Rest())}
		} else {
			n := copy(f.all, f.Rest())
			clear(f.all[n:])
			f.all, f.head = f.all[:n], 0
		}
	}
	f.replace(append(f.all, more...))
}

// replace makes all the elements and their memory. It clears memory that is too small by now: who gave it to New may keep it.
func (f *Queue[T]) replace(all []T) {
	if cap(all) != cap(f.all) {
		clear(f.all)
	}
	f.all = all
}

// PushFront puts an element before all others: it is handed out next.
func (f *Queue[T]) PushFront(first T) {
	if f.head == 0 {
		f.replace(slices.Insert(f.all, 0, first))
		return
	}
	f.head--
	f.all[f.head] = first
}

// DeleteFunc takes out the elements for which del is true. The first skip elements stay, and del
// is not asked about them.
func (f *Queue[T]) DeleteFunc(skip int, del func(T) bool) {
	rest := slices.DeleteFunc(f.all[f.head+skip:], del)
	if f.all = f.all[:f.head+skip+len(rest)]; f.Len() == 0 {
		f.all, f.head = f.all[:0], 0
	}
}

// Pop takes the first element out and returns it. The Queue must not be empty.
func (f *Queue[T]) Pop() (first T) {
	var zero T
	first, f.all[f.head] = f.all[f.head], zero
	f.head++
	switch {
	case f.head < len(f.all):
	case cap(f.all) > KeptCapacity:
		*f = Queue[T]{}
	default:
		f.all, f.head = f.all[:0], 0
	}
	return first
}
