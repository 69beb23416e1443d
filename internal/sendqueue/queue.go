// Package sendqueue is the bounded queue between those who send messages to a peer and
// the one goroutine that writes them, several at a time.
package sendqueue

import (
	"context"
	"io"
	"sync"
)

// minKeptCapacity bounds the memory that TakeAll keeps for the list of a Queue. A list with room for four times so many messages is always
// kept; a larger one only if at least a quarter of it was needed for the messages just taken.
const minKeptCapacity = 64

// Queue holds the texts of messages until they are taken, to be written. Any number of goroutines may send, one
// takes.
type Queue struct {
	maxMessages, maxBytes int           // with so many messages, or bytes, the Queue is full
	ready                 chan struct{} // holds one element when something was queued, or the Queue was closed

	mu          sync.Mutex    // guards what follows
	texts       [][]byte      // the messages that wait, oldest first
	queuedBytes int           // how many bytes texts have
	closeErr    error         // the error of Send after Close; nil: the Queue is open
	roomFreed   chan struct{} // closed when there may be room, or never will be; nil: nobody waits for that
}

// New returns a Queue that is full when it holds so many messages, or bytes. What it
// holds may be larger by one message: one of any size fits into a Queue that is not full.
func New(maxMessages, maxBytes int) *Queue {
	return &Queue{maxMessages: maxMessages, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// Send queues the text of a message, which nobody may change. It waits while the Queue is full. It returns the error of ctx
// when that is done, and after Close that of Close; then nothing was queued.
func (q *Queue) Send(ctx context.Context, text []byte) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		room, err := q.put(text)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// TrySend queues the text of a message if the Queue is neither full nor closed; false: nothing was done.
func (q *Queue) TrySend(text []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.putLocked(text)
}

// put queues a text. If room is not nil, the Queue is full and nothing was done: room is closed when there
// may be some. The error is that of Close.
func (q *Queue) put(text []byte) (room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closeErr != nil:
		return nil, q.closeErr
	case q.putLocked(text):
		return nil, nil
	case q.roomFreed == nil:
		q.roomFreed = make(chan struct{})
	}
	return q.roomFreed, nil
}

// putLocked does the work of TrySend; the lock is held.
func (q *Queue) putLocked(text []byte) (taken bool) {
	if q.closeErr != nil || q.queuedBytes >= q.maxBytes || len(q.texts) >= q.maxMessages {
		return false
	}
	q.texts = append(q.texts, text)
	q.queuedBytes += len(text)
	q.signalReady()
	return true
}

// Ready holds an element when there is something to take that was not there before, or
// the Queue was closed. It is for the goroutine that takes.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// TakeAll takes out all messages and returns them, in order. The Queue keeps the memory of buf, which is empty, for
// those to come, unless it is too much (minKeptCapacity); if there are none, TakeAll returns buf. last says that the Queue
// is closed, so that no more will come.
func (q *Queue) TakeAll(buf [][]byte) (all [][]byte, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.texts)
	if n == 0 {
		return buf[:0], q.closeErr != nil
	}
	if cap(buf) > 4*max(n, minKeptCapacity) {
		buf = nil
	}
	all, q.texts, q.queuedBytes = q.texts, buf[:0], 0
	q.wakeSenders()
	return all, q.closeErr != nil
}

// Len returns how many messages wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.texts)
}

// Close makes Send return err, and TrySend false, from now on. What waits can still be taken. Only the
// first Close counts; a nil err stands for io.ErrClosedPipe.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closeErr != nil {
		return
	}
	if q.closeErr = err; err == nil {
		q.closeErr = io.ErrClosedPipe
	}
	q.wakeSenders()
	q.signalReady()
}

// wakeSenders lets those look again who wait in Send for room. The lock is held.
func (q *Queue) wakeSenders() {
	if q.roomFreed != nil {
		close(q.roomFreed)
		q.roomFreed = nil
	}
}

// signalReady puts an element into ready, unless there is one.
func (q *Queue) signalReady() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
