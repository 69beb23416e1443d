package bridge

import (
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for those that bring messages and have rules of their own on how much
// may wait, and for how long.

// Load is an amount of messages.
type Load struct {
	Messages int // how many messages
	Bytes    int // how many bytes the messages have together
}

// Waiting returns how much waits. A message that is being offered to the receiver counts.
func (b *Inbox) Waiting() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting()
}

// waiting returns how much waits. It is called with mu held.
func (b *Inbox) waiting() Load { return Load{b.queue.Len(), b.queuedBytes} }

// Taken returns how much the receiver has taken from the queue so far; what it was handed without being queued does
// not count.
func (b *Inbox) Taken() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// lowMark is what NotifyBelow was asked for: how little may wait for notify to be told.
type lowMark struct {
	Load
	notify chan<- struct{} // told once; nil: nobody is to be told
}

// isReached reports whether so little waits: no more messages than the mark has, and no more bytes, or nothing at all.
func (l lowMark) isReached(waiting Load) bool {
	return waiting.Messages == 0 || waiting.Messages <= l.Messages && waiting.Bytes <= l.Bytes
}

// NotifyBelow has notify get one element, if it has room for that, as soon as no more than low waits (in messages and
// in bytes), or nothing. It takes the place of what was asked for before.
func (b *Inbox) NotifyBelow(low Load, notify chan<- struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.low = (lowMark{low, notify}); b.low.isReached(b.waiting()) {
		b.notifyLow()
	}
}

// notifyLow tells the channel of NotifyBelow, and forgets it. mu is held.
func (b *Inbox) notifyLow() {
	signal(b.low.notify)
	b.low = lowMark{}
}

// IsNotifying reports whether the element that NotifyBelow was asked for is still to come.
func (b *Inbox) IsNotifying() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.low.notify != nil
}

// Remove takes back the messages that wait and match, and reports whether there were any. A message that is just being
// offered to the receiver is dropped if the receiver does not take it.
func (b *Inbox) Remove(match func(m jsonrpc.Message) bool) (found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.queue.Len()
	if before == 0 {
		return false
	}
	from := 0
	if b.offeringFirst {
		found, from = !b.dropOffered && match(b.queue.Rest()[0]), 1
		b.dropOffered = b.dropOffered || found
	}
	b.firstRefused = b.firstRefused && !match(b.queue.Rest()[0])
	b.queue.DeleteFunc(from, func(m jsonrpc.Message) bool {
		if !match(m) {
			return false
		}
		b.queuedBytes -= m.Size()
		return true
	})
	if b.queue.Len() < before {
		b.noteRemoval()
		return true
	}
	return found
}
