package bridge

import (
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is for those that bring messages and have rules of their own on how much
// may wait, and for how long.

// Load is an amount of messages.
type Load struct{ Messages, Bytes int }

// Waiting returns what waits. A message that is being offered to the receiver waits, too.
func (b *Inbox) Waiting() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting()
}

func (b *Inbox) waiting() Load { return Load{b.queue.Len(), b.queuedBytes} }

// Taken returns what the receiver has taken so far.
func (b *Inbox) Taken() Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// lowMark is how little has to wait for notify to be told; nil: nobody is.
type lowMark struct {
	Load
	notify chan<- struct{}
}

func (l lowMark) isReached(waiting Load) bool {
	return waiting.Messages == 0 || waiting.Messages <= l.Messages && waiting.Bytes <= l.Bytes
}

// NotifyBelow has notify get an element, if it has room for one, once no more than low
// waits, or nothing. That is for the next time only, and takes the place of what was asked
// for before.
func (b *Inbox) NotifyBelow(low Load, notify chan<- struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.low = (lowMark{low, notify}); b.low.isReached(b.waiting()) {
		b.notifyLow()
	}
}

// notifyLow is called when the low mark is reached.
func (b *Inbox) notifyLow() {
	signal(b.low.notify)
	b.low = lowMark{}
}

// IsNotifying reports whether what NotifyBelow was asked for is still to come.
func (b *Inbox) IsNotifying() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.low.notify != nil
}

// Remove takes back all that waits and matches, and reports whether there was anything. A
// message that is being offered to the receiver is dropped if that does not take it.
func (b *Inbox) Remove(match func(m jsonrpc.Message) bool) (found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.queue.Len()
	if before == 0 {
		return false
	}
	from := 0
	if b.offeringFirst {
		b.dropOffered = b.dropOffered || match(b.queue.Rest()[0])
		found, from = b.dropOffered, 1
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
