package bridge

import "slices"

// fifoKept is how many elements a fifo keeps memory for while it is empty.
const fifoKept = 16

// fifo is a queue whose memory is used again. The zero fifo is empty.
type fifo[T any] struct {
	all  []T
	head int // the first of all that is still in it
}

func (f *fifo[T]) len() int { return len(f.all) - f.head }

// rest returns what is in it, in order, until the next push or pop.
func (f *fifo[T]) rest() []T { return f.all[f.head:] }

func (f *fifo[T]) push(more ...T) {
	if len(f.all)+len(more) > cap(f.all) && f.head >= f.len() { // in place of growing
		if cap(f.all) > 4*max(f.len(), fifoKept) {
			*f = fifo[T]{all: slices.Clone(f.rest())}
		} else {
			n := copy(f.all, f.rest())
			clear(f.all[n:])
			f.all, f.head = f.all[:n], 0
		}
	}
	old := f.all
	if f.all = append(f.all, more...); cap(f.all) != cap(old) {
		clear(old)
	}
}

// pop takes the first element out, which there must be.
func (f *fifo[T]) pop() (first T) {
	var zero T
	first, f.all[f.head] = f.all[f.head], zero
	f.head++
	switch {
	case f.head < len(f.all):
	case cap(f.all) > fifoKept:
		*f = fifo[T]{}
	default:
		f.all, f.head = f.all[:0], 0
	}
	return first
}
