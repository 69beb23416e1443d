package era

import (
	"container/heap"
	"time"
)

// alarm is something that is to be done at a time, unless it is stopped before.
type alarm struct {
	at    time.Time
	fire  func(now time.Time, out *Out)
	index int // in the heap; -1 when it has fired or was stopped
}

// alarms is what is to be done, the earliest first. The zero value is ready.
type alarms struct{ heap alarmHeap }

// set has fire called by due at a time at or after at.
func (a *alarms) set(at time.Time, fire func(now time.Time, out *Out)) *alarm {
	n := &alarm{at: at, fire: fire}
	heap.Push(&a.heap, n)
	return n
}

// stop takes an alarm back. It may be nil, have fired, or be stopped already.
func (a *alarms) stop(n *alarm) {
	if n != nil && n.index >= 0 {
		heap.Remove(&a.heap, n.index)
	}
}

// next returns when due is to be called; zero: there is nothing to be done.
func (a *alarms) next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// due does what is to be done until now.
func (a *alarms) due(now time.Time, out *Out) {
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		heap.Pop(&a.heap).(*alarm).fire(now, out)
	}
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *alarmHeap) Push(x any) {
	n := x.(*alarm)
	n.index = len(*h)
	*h = append(*h, n)
}

func (h *alarmHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	n.index = -1
	return n
}
