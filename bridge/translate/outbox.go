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

	takenAtOnce bool              // the server has taken the last message at once; whose turn it is has it
	spare       []jsonrpc.Message // memory of era.Out.ToServer; likewise

	queue   fifo.Queue[outgoing]
	batches int // how many of queue end a batch
}

// outgoing is one message for the server. waiter is the Send that waits for it;
// nil: none does.
type outgoing struct {
	m         jsonrpc.Message
	waiter    *pendingSend
	endsBatch bool // is the last of all that the filter has said at once, and nobody waits for
}

// pendingSend is a Send that may wait until its messages are written.
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

// leaveToWriter says that nobody's Send writes the nth message, and what comes before it.
func (o *outbox) leaveToWriter(n int) {
	o.queue.Rest()[n-1].endsBatch = true
	o.batches++
	signal(o.wakeWriter)
}

// stopWaiting says that the Send s waits no more for what is left of its messages. It reports
// whether anything is.
func (o *outbox) stopWaiting(s *pendingSend) (left bool) {
	rest := o.queue.Rest()
	for i := range rest {
		if rest[i].waiter == s {
			rest[i].waiter, left = nil, true
		}
	}
	return left
}

// putBack puts what was not written before all else, and leaves it to runWriter.
func (o *outbox) putBack(messages []jsonrpc.Message) {
	after := slices.Clone(o.queue.Rest())
	o.queue = fifo.Queue[outgoing]{}
	for _, m := range messages {
		o.queue.Push(outgoing{m: m})
	}
	o.leaveToWriter(len(messages))
	o.queue.Push(after...)
}

// unsentBatches returns how many times the filter has said something that nobody waits for and is
// not written.
func (o *outbox) unsentBatches() int { return o.batches }

func (o *outbox) isEmpty() bool { return o.queue.Len() == 0 }

func (o *outbox) first() (first outgoing, ok bool) {
	if o.isEmpty() {
		return first, false
	}
	return o.queue.Rest()[0], true
}

// pop takes the first message out; ok is false if dropAll was called.
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

// reuse keeps the memory of messages for the filter's next word. The caller has the turn.
func (o *outbox) reuse(messages []jsonrpc.Message) {
	if cap(messages) <= fifo.KeptCapacity {
		clear(messages)
		o.spare = messages[:0]
	}
}
