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
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

var (
	errFull = errors.New("ws: the queue is full")
	errShut = errors.New("ws: the queue is shut")
)

// put adds m, or returns errFull or errShut.
func (q *queue) put(m jsonrpc.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.shut:
		return errShut
	case q.size >= maxQueued:
		return errFull
	}
	q.items = append(q.items, m)
	q.size += perMessage + len(m.Bytes())
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
	signal(q.room)
	return into
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
