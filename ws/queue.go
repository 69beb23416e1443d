package ws

import (
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/budget"
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

	shares  []*budget.Share // of what is in items
	passing []*budget.Share // of what was taken last, which its taker passes on
}

func newQueue() *queue {
	return &queue{filled: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

var (
	errFull = errors.New("ws: the queue is full")
	errShut = errors.New("ws: the queue is shut")
)

// put adds m, or returns errFull or errShut.
func (q *queue) put(m jsonrpc.Message) error { return q.putHolding(m, nil) }

// putHolding is put of a message that holds a share of a budget; nil: it does not.
// That is given back when who has taken it comes for more, or the queue is dropped.
func (q *queue) putHolding(m jsonrpc.Message, share *budget.Share) error {
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
	if share != nil {
		q.shares = append(q.shares, share)
	}
	signal(q.filled)
	return nil
}

// takeAll appends everything to into and returns it. What it has returned before
// has been passed on.
func (q *queue) takeAll(into []jsonrpc.Message) []jsonrpc.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.passed()
	if len(q.items) == 0 {
		return into
	}
	into = append(into, q.items...)
	clear(q.items)
	q.items, q.size = q.items[:0], 0
	q.shares, q.passing = q.passing, q.shares
	signal(q.room)
	return into
}

// passed gives back what takeAll has handed out. It is called with mu held.
func (q *queue) passed() {
	for _, share := range q.passing {
		share.Free()
	}
	clear(q.passing)
	q.passing = q.passing[:0]
}

// drop forgets what is in the queue, from which nobody takes any more.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.size = nil, 0
	q.passed()
	q.passing, q.shares = q.shares, nil
	q.passed()
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
