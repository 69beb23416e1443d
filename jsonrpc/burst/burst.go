// Package burst lets messages that were received together be sent together, with one system call in the place of one
// for each: for a client that sends requests without waiting for the answers, most of what a request costs is such calls.
package burst

import (
	"sync"
	"sync/atomic"
)

// A Burst is the messages that one goroutine gets with one read, and hands on one after the other. Each is given the
// Burst with jsonrpc.Message.WithBurst. A Conn to which it is sent may keep it back then, and write it together with
// those that follow.
//
// What is kept back must not stay so while the goroutine waits for anything. So it calls Begin when it has a message that
// others follow, and End before it may wait: before it reads, before it calls Send, before it takes a lock that may be held
// for long. It hands messages on with TrySend, which does not wait. A Sink whose TrySend does more than hand a message on,
// such as closing a Conn, takes the Burst from the message first (WithBurst(nil)).
//
// All methods may be called by any number of goroutines at the same time: a message may be handed on by another goroutine
// than that which has read it, also when the Burst has ended. The zero Burst is ready for use; it must not be copied. Of the
// nil Burst, which most messages have, nothing is kept back.
type Burst struct {
	going atomic.Bool // Begin was called, and End was not yet; set under mu

	mu       sync.Mutex // guards what follows; never held while a Keeper is called
	messages int        // how often Begin was called since the last End
	keepers  []Keeper   // those that keep messages of this Burst back, each once
}

// A Keeper keeps messages back. Keepers are compared with ==.
type Keeper interface {
	// WriteKept writes what is kept back, unless somebody else is about to do so. It does not wait. It may be called
	// concurrently.
	WriteKept()
}

const (
	maxMessages = 32 // after so many messages, what is kept back is written although the Burst goes on: the first one has waited long enough
	maxKeepers  = 16 // so many Keepers a Burst has at most; to look for one among more would cost more than is saved
)

// Begin says that more messages follow the next one at once. It is called for each such message, and has what is kept back written
// now and then.
func (b *Burst) Begin() {
	b.mu.Lock()
	b.messages++
	tooMany := b.messages > maxMessages
	b.going.Store(true)
	b.mu.Unlock()
	if tooMany {
		b.writeAll(true)
	}
}

// Going reports whether Begin was called, and End was not yet.
func (b *Burst) Going() bool { return b.going.Load() }

// Keep is called by a Keeper that has kept a message back. True: its WriteKept will be called when the Burst ends, or was
// called meanwhile. False: the Burst is over, or has too many Keepers, and the Keeper calls its WriteKept itself.
func (b *Burst) Keep(k Keeper) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.going.Load() {
		return false
	}
	for _, known := range b.keepers {
		if known == k {
			return true
		}
	}
	if len(b.keepers) == maxKeepers {
		return false
	}
	b.keepers = append(b.keepers, k)
	return true
}

// End has what is kept back written, and returns when that is done, or another goroutine is about to do it. Until the next
// Begin, nothing is kept back any more.
func (b *Burst) End() {
	if b != nil && b.going.Load() {
		b.writeAll(false)
	}
}

// writeAll calls all Keepers. going says whether the Burst goes on.
func (b *Burst) writeAll(going bool) {
	var keepers [maxKeepers]Keeper
	b.mu.Lock()
	b.going.Store(going)
	b.messages = 0
	if going {
		b.messages = 1 // that with which Begin was called
	}
	n := copy(keepers[:], b.keepers)
	clear(b.keepers)
	b.keepers = b.keepers[:0]
	b.mu.Unlock()
	for _, k := range keepers[:n] {
		k.WriteKept()
	}
}
