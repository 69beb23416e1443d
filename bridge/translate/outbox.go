package translate

import (
	"slices"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// outbox is the queue of messages for the server of a translatedConn. Its mu guards the outbox, but for the channels,
// and takenAtOnce and spare, which belong to whoever has the turn.
type outbox struct {
	writeTurn  chan struct{} // a lock: holds one element while somebody writes to the server
	wakeWriter chan struct{} // holds one element when there is something for runWriter
	taken      chan struct{} // holds one element when a batch has left the queue

	takenAtOnce bool              // TrySend of the server has taken the last message
	spare       []jsonrpc.Message // memory that TrySend has the filter put its messages into; nil: there is none

	queue   fifo.Queue[outgoing] // the messages that wait to be written
	batches int                  // how many batches are in queue: messages of it with endsBatch
	writing bool                 // the first message of queue is being written, was written just now, or was not taken when the ctx of its Send ended
	failed  []jsonrpc.ID         // the ids of the requests that the server has refused to take
}

// outgoing is one message that waits to be written to the server.
type outgoing struct {
	m         jsonrpc.Message // the message for the server
	waiter    *pendingSend    // the Send that waits for the message; nil: none does
	endsBatch bool            // it is the last of a batch: of what the filter has said at once, and no Send waits for
}

// pendingSend is a Send that waits until the messages which the filter has made of its message are written.
type pendingSend struct {
	err   error // why the Send's messages were not written; nil: none has failed, or some were written before it
	wrote bool  // a message of the Send was written
}

// init makes the outbox ready.
func (o *outbox) init() {
	o.writeTurn, o.wakeWriter, o.taken = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
}

// add appends what the filter has said to the server in the course of the Send s. If s is nil, no Send waits for it,
// and runWriter writes it as one batch.
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

// leaveToWriter makes message n of the queue, counted from 1, the last of a batch for which no Send waits, and has runWriter
// write what is in the queue.
func (o *outbox) leaveToWriter(n int) {
	o.queue.Rest()[n-1].endsBatch = true
	o.batches++
	signal(o.wakeWriter)
}

// stopWaiting has the Send s not wait any more for those of its messages that are in the queue; left: there are some.
func (o *outbox) stopWaiting(s *pendingSend) (left bool) {
	rest := o.queue.Rest()
	for i := range rest {
		if rest[i].waiter == s {
			rest[i].waiter, left = nil, true
		}
	}
	return left
}

// putBack puts messages that were not written at the head of the queue, as one batch, for runWriter to write. It does
// so however long the queue is. mu is held.
func (o *outbox) putBack(messages []jsonrpc.Message) {
	after := slices.Clone(o.queue.Rest())
	o.queue = fifo.Queue[outgoing]{}
	for _, m := range messages {
		o.queue.Push(outgoing{m: m})
	}
	o.leaveToWriter(len(messages))
	o.queue.Push(after...)
}

// unsentBatches returns how many batches are in the queue. A batch is what the filter has said at once in the course of no
// Send, or what the server has not taken of a TrySend; what is left of it counts as one.
func (o *outbox) unsentBatches() int { return o.batches }

// isEmpty reports whether no message waits.
func (o *outbox) isEmpty() bool { return o.queue.Len() == 0 }

// first returns the first message, which is written now, and stays in the queue; ok is false if the queue is empty.
func (o *outbox) first() (first outgoing, ok bool) {
	if o.isEmpty() {
		return first, false
	}
	o.writing = true
	return o.queue.Rest()[0], true
}

// pop takes the first message out of the queue and returns it; ok is false if the queue is empty.
func (o *outbox) pop() (first outgoing, ok bool) {
	if o.isEmpty() {
		return first, false
	}
	first, o.writing = o.queue.Pop(), false
	if first.endsBatch {
		o.batches--
		signal(o.taken)
	}
	return first, true
}

// takeUnwritten empties the queue, and returns the ids of the requests that the server cannot have got. One that is
// just being written is not among them: nobody knows what comes of that.
func (o *outbox) takeUnwritten() []jsonrpc.ID {
	all := o.failed
	for i, next := range o.queue.Rest() {
		if next.m.Kind() == jsonrpc.Request && (i > 0 || !o.writing) {
			all = append(all, next.m.ID())
		}
	}
	o.queue, o.batches, o.failed = fifo.Queue[outgoing]{}, 0, nil
	return all
}

// reuse keeps the memory of messages as spare, unless it is large. The caller has the turn.
func (o *outbox) reuse(messages []jsonrpc.Message) {
	if cap(messages) <= fifo.KeptCapacity {
		clear(messages)
		o.spare = messages[:0]
	}
}
