package legacyserver

import (
	"container/heap"
	"github.com/mcp-bridge/mcp-bridge/era"
	"time"
)

// timer is something that is to be done at a time, unless it is stopped before.
type timer struct {
	at    time.Time
	fire  func(now time.Time, out *era.Out)
	index int // in the heap; -1 when it has fired or was stopped
}

// timers is what is to be done, the earliest first. The zero value is ready.
type timers struct{ heap timerHeap }

// set has fire called by due at a time at or after at.
func (a *timers) set(at time.Time, fire func(now time.Time, out *era.Out)) *timer {
	n := &timer{at: at, fire: fire}
	heap.Push(&a.heap, n)
	return n
}

// stop takes an timer back. It may be nil, have fired, or be stopped already.
func (a *timers) stop(n *timer) {
	if n != nil && n.index >= 0 {
		heap.Remove(&a.heap, n.index)
	}
}

// next returns when due is to be called; zero: there is nothing to be done.
func (a *timers) next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// due does what is to be done until now.
func (a *timers) due(now time.Time, out *era.Out) {
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		heap.Pop(&a.heap).(*timer).fire(now, out)
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap) Push(x any) {
	n := x.(*timer)
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *timerHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	n.index = -1
	return n
}
