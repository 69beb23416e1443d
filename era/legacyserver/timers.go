package legacyserver

import (
	"container/heap"
	"github.com/mcp-bridge/mcp-bridge/era"
	"time"
)

// timer calls fire at a time, unless it is stopped before.
type timer struct {
	at    time.Time
	fire  func(now time.Time, out *era.Out)
	index int // in the heap; -1 when it has fired or was stopped
}

// timers are the pending timers. A Filter has no clock: due is called with the
// time. The zero value is ready.
type timers struct{ heap timerHeap }

// set adds a timer: due calls fire at this time or later.
func (a *timers) set(at time.Time, fire func(now time.Time, out *era.Out)) *timer {
	n := &timer{at: at, fire: fire}
	heap.Push(&a.heap, n)
	return n
}

// stop removes a timer. n may be nil, fired or stopped.
func (a *timers) stop(n *timer) {
	if n != nil && n.index >= 0 {
		heap.Remove(&a.heap, n.index)
	}
}

// next returns the time of the next timer; zero: there is none.
func (a *timers) next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// due calls what is due by now.
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
