// Package sendqueue is the bounded queue between those who send messages to a peer and
// the one goroutine that writes them, several at a time.
package sendqueue

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// keptMessages is for how many messages a Queue keeps memory in any case. Of more it keeps
// memory while it is used.
const keptMessages = 64

// Queue holds messages until they are written. Any number of goroutines may send, one
// takes.
type Queue struct {
	maxMessages, maxBytes int
	ready                 chan struct{} // holds one element when something was queued, or the Queue was closed

	mu       sync.Mutex
	messages []jsonrpc.Message
	bytes    int           // of messages
	over     error         // why nothing is queued any more
	room     chan struct{} // is closed when there may be room, or no more ever; nil: nobody waits for it
}

// New returns a Queue that is full when it holds so many messages, or bytes. What it
// holds may be larger by one message: one of any size fits into a Queue that is not full.
func New(maxMessages, maxBytes int) *Queue {
	return &Queue{maxMessages: maxMessages, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// Send queues m. It waits while the Queue is full. After Close it returns Close's error.
func (q *Queue) Send(ctx context.Context, m jsonrpc.Message) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		room, err := q.put(m)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// TrySend is Send where that needs no waiting; false: nothing was done.
func (q *Queue) TrySend(m jsonrpc.Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.putLocked(m)
}

// put queues m, or returns what is closed when there may be room for it.
func (q *Queue) put(m jsonrpc.Message) (room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.over != nil:
		return nil, q.over
	case q.putLocked(m):
		return nil, nil
	case q.room == nil:
		q.room = make(chan struct{})
	}
	return q.room, nil
}

func (q *Queue) putLocked(m jsonrpc.Message) bool {
	if q.over != nil || q.bytes >= q.maxBytes || len(q.messages) >= q.maxMessages {
		return false
	}
	q.messages = append(q.messages, m)
	q.bytes += m.Size()
	q.wake()
	return true
}

// Ready holds an element when there is something to take that was not there before, or
// the Queue was closed. It is for the goroutine that takes.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// TakeAll returns all messages, in order, and keeps the memory of buf, which is empty, for
// those to come. last says that the Queue is closed, so that no more will come.
func (q *Queue) TakeAll(buf []jsonrpc.Message) (all []jsonrpc.Message, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.messages)
	if n == 0 {
		return buf[:0], q.over != nil
	}
	if cap(buf) > 4*max(n, keptMessages) {
		buf = nil
	}
	all, q.messages, q.bytes = q.messages, buf[:0], 0
	q.freeRoom()
	return all, q.over != nil
}

// Len returns how many messages wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.messages)
}

// Close makes Send return err, and TrySend false. What waits can still be taken. Only the
// first Close counts; nil is io.ErrClosedPipe.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return
	}
	if q.over = err; err == nil {
		q.over = io.ErrClosedPipe
	}
	q.freeRoom()
	q.wake()
}

// freeRoom wakes those who wait for room.
func (q *Queue) freeRoom() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

func (q *Queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
