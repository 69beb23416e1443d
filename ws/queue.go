package ws

import (
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxQueued is how many bytes may wait in a queue. One message always fits.
const maxQueued = 256 << 10

// perMessage is what a message in a queue costs beside its bytes.
const perMessage = 128

// queue holds messages between one goroutine that puts and one that takes.
type queue struct {
	filled chan struct{} // holds one element when something was put
	room   chan struct{} // holds one element when something was taken

	mu    sync.Mutex
	items []jsonrpc.Message
	size  int
	shut  bool

	budget *budget // may be nil
	owed   int     // to budget, for what is in items
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

var (
	errFull = errors.New("ws: the queue is full")
	errShut = errors.New("ws: the queue is shut")
)

// put adds m, or returns errFull or errShut.
func (q *queue) put(m jsonrpc.Message) error { return q.putOwing(m, 0) }

// putOwing is put of a message for which owed bytes of the budget are taken.
// They are given back when it leaves the queue.
func (q *queue) putOwing(m jsonrpc.Message, owed int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.shut:
		return errShut
	case q.size >= maxQueued:
		return errFull
	}
	q.items = append(q.items, m)
	q.size += perMessage + m.Size()
	q.owed += owed
	signal(q.filled)
	return nil
}

// takeAll appends everything to into and returns it.
func (q *queue) takeAll(into []jsonrpc.Message) []jsonrpc.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return into
	}
	into = append(into, q.items...)
	clear(q.items)
	q.items, q.size = q.items[:0], 0
	q.settle()
	signal(q.room)
	return into
}

// settle gives back what is owed. It is called with mu held.
func (q *queue) settle() {
	q.budget.free(q.owed)
	q.owed = 0
}

// drop forgets what is in the queue, from which nobody takes any more.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.size = nil, 0
	q.settle()
}

// close makes put fail. What is in the queue can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.shut = true
	signal(q.room) // whoever waits for some finds out
	q.mu.Unlock()
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}
