package translate

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// outbox is what waits to be written to the server. translatedConn.mu guards it, except
// writeTurn, wakeWriter, taken, takenAtOnce and spare; the last two belong to whoever has the turn.
type outbox struct {
	writeTurn  chan struct{} // holds one element while somebody writes to the server
	wakeWriter chan struct{} // holds one element when there is something for runWriter
	taken      chan struct{} // holds one element when a batch was taken out

	takenAtOnce bool              // the server has taken the last message at once; only for who has the turn
	spare       []jsonrpc.Message // memory for the next era.Out.ToServer; only for who has the turn

	queue   fifo.Queue[outgoing]
	batches int // how many of queue end a batch
}

// outgoing is one message for the server. waiter is the Send that waits for it;
// nil: none does.
type outgoing struct {
	m         jsonrpc.Message
	waiter    *pendingSend
	endsBatch bool // it is the last of a batch: of what the filter has said at once, and no Send waits for
}

// pendingSend is a Send that may wait until its messages are written; err is why one of them was
// not.
type pendingSend struct{ err error }

func (o *outbox) init() {
	o.writeTurn, o.wakeWriter, o.taken = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
}

// add appends what the filter has said in the course of the Send s; nil: of none.
func (o *outbox) add(messages []jsonrpc.Message, s *pendingSend) {
	if len(messages) == 0 {
		return
	}
	for _, m := range messages {
		o.queue.Push(outgoing{m: m, waiter: s})
	}
	if s == nil {
		o.leaveToWriter(o.queue.Len())
	}
}

// leaveToWriter leaves the first n messages to runWriter, as one batch: no Send waits for them.
func (o *outbox) leaveToWriter(n int) {
	o.queue.Rest()[n-1].endsBatch = true
	o.batches++
	signal(o.wakeWriter)
}

// stopWaiting makes the Send s wait no more for those of its messages that are still in the
// queue; left: there are some.
func (o *outbox) stopWaiting(s *pendingSend) (left bool) {
	rest := o.queue.Rest()
	for i := range rest {
		if rest[i].waiter == s {
			rest[i].waiter, left = nil, true
		}
	}
	return left
}

// putBack puts messages that were not written before all others, and leaves them to runWriter.
func (o *outbox) putBack(messages []jsonrpc.Message) {
	after := slices.Clone(o.queue.Rest())
	o.queue = fifo.Queue[outgoing]{}
	for _, m := range messages {
		o.queue.Push(outgoing{m: m})
	}
	o.leaveToWriter(len(messages))
	o.queue.Push(after...)
}

// unsentBatches returns how many batches are in the queue: how many times the filter has said
// something that no Send waits for.
func (o *outbox) unsentBatches() int { return o.batches }

func (o *outbox) isEmpty() bool { return o.queue.Len() == 0 }

// first returns the first message, and leaves it in the queue; ok is false if the queue is
// empty.
func (o *outbox) first() (first outgoing, ok bool) {
	if o.isEmpty() {
		return first, false
	}
	return o.queue.Rest()[0], true
}

// pop takes the first message out; ok is false if the queue is empty.
func (o *outbox) pop() (first outgoing, ok bool) {
	if o.isEmpty() {
		return first, false
	}
	first = o.queue.Pop()
	if first.endsBatch {
		o.batches--
		signal(o.taken)
	}
	return first, true
}

// dropAll forgets all that waits.
func (o *outbox) dropAll() { o.queue, o.batches = fifo.Queue[outgoing]{}, 0 }

// reuse keeps the memory of messages for what the filter says next to the server. The caller has
// the turn.
func (o *outbox) reuse(messages []jsonrpc.Message) {
	if cap(messages) <= fifo.KeptCapacity {
		clear(messages)
		o.spare = messages[:0]
	}
}
