// Package timers keeps the pending timers of something that has no clock of its own.
package timers

import (
	"container/heap"
	"github.com/mcp-bridge/mcp-bridge/era"
	"time"
)

// Timer is something to do at a time, unless it is stopped before.
type Timer struct {
	at    time.Time                         // when the timer is due
	fire  func(now time.Time, out *era.Out) // what FireDue calls then; out gets the messages to send
	index int                               // where the timer stands in the heap; -1: it has fired or was stopped
}

// Timers are the pending timers. Their owner, a Filter, has no clock: FireDue is called
// with the time. The zero value is ready.
type Timers struct {
	heap timerHeap // the pending timers, the next one first
}

// Set adds a timer: FireDue calls fire, once, at this time or later, unless Stop has removed the timer before.
func (a *Timers) Set(at time.Time, fire func(now time.Time, out *era.Out)) *Timer {
	n := &Timer{at: at, fire: fire}
	heap.Push(&a.heap, n)
	return n
}

// Stop removes a timer. n may be nil, fired or stopped.
func (a *Timers) Stop(n *Timer) {
	if n != nil && n.index >= 0 {
		heap.Remove(&a.heap, n.index)
	}
}

// Next returns the time of the next timer; zero: there is none.
func (a *Timers) Next() time.Time {
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// FireDue calls fire of each timer that is due by now, with now and out, and removes the timer.
func (a *Timers) FireDue(now time.Time, out *era.Out) {
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		heap.Pop(&a.heap).(*Timer).fire(now, out)
	}
}

// timerHeap is a heap.Interface that is ordered by the times of its timers. Its methods are for
// package heap; Swap, Push and Pop keep each timer's index.
type timerHeap []*Timer

// Len implements heap.Interface. It returns the number of timers.
func (h timerHeap) Len() int { return len(h) }

// Less implements heap.Interface: the earlier timer comes first.
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface, and notes where the two timers stand.
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface: it appends a *Timer, and notes where it stands.
func (h *timerHeap) Push(x any) {
	n := x.(*Timer)
	n.index = len(*h)
	*h = append(*h, n)
}

// Pop implements heap.Interface: it removes the last *Timer, and notes that it is in no heap.
func (h *timerHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	n.index = -1
	return n
}
