// Package burst lets messages that were received together be sent together: with one system call in the place of
// one for each. A client that sends many requests without waiting for the answers is served nearly twice as fast.
package burst

import "sync"

// A Burst is the messages that one goroutine gets with one read, and hands on one after the other. The message is given
// its Burst with jsonrpc.Message.WithBurst. A Conn to which it is sent may keep it back then, and write it together with
// those that follow.
//
// What is kept back must not stay so while anybody waits. So the goroutine that has called Begin calls End before it
// does anything that may wait: before it reads, and before it calls Send. It hands on with TrySend, which does not wait.
//
// Only that goroutine calls Begin, End and Going. Any number of goroutines may call Hold. The zero Burst is ready for
// use; it must not be copied. Of the nil Burst, that of most messages, nothing is kept back.
type Burst struct {
	mu      sync.Mutex // guards what follows; never held while a Holder is called
	going   bool       // Begin was called, and End was not yet
	holders []Holder   // those that keep messages of this Burst back, each once
}

// A Holder keeps messages back until the end of their Burst. It can be compared.
type Holder interface {
	// WriteHeld writes what is kept back, unless somebody else is about to do so. It does not wait.
	WriteHeld()
}

// maxHolders is how many Holders one Burst may have; one more has to write at once. To look for a Holder among more
// would cost more than is saved.
const maxHolders = 16

// Begin says that more messages follow at once. It may be called again before End.
func (b *Burst) Begin() {
	if b.going {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.going = true
}

// Going reports whether Begin was called, and End was not yet.
func (b *Burst) Going() bool { return b.going } // written only by the goroutine that may call this

// Hold is called by a Holder that is about to keep a message back. True: the Holder's WriteHeld will be called, soon.
// False: the message must be written now.
func (b *Burst) Hold(h Holder) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.going {
		return false
	}
	for _, known := range b.holders {
		if known == h {
			return true
		}
	}
	if len(b.holders) == maxHolders {
		return false
	}
	b.holders = append(b.holders, h)
	return true
}

// End has all Holders write what they keep back, and returns when they have done so. Until the next Begin, nothing is
// kept back any more.
func (b *Burst) End() {
	if b == nil || !b.going {
		return
	}
	b.mu.Lock()
	b.going = false
	b.mu.Unlock()
	// Hold adds nothing now, so nobody else uses holders.
	for i, h := range b.holders {
		h.WriteHeld()
		b.holders[i] = nil
	}
	b.holders = b.holders[:0]
}
