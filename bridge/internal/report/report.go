// Package report is for locks under which messages turn out to reach nobody.
package report

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Mutex is a lock whose holder finds out that messages reach nobody. Unlock tells
// Dropped of these messages when the lock is free again, in the same goroutine. So
// Dropped may take its time, and use what the lock guards. The zero value is unlocked.
type Mutex struct {
	// Dropped is told of each message that reaches nobody, and why; nil: nobody is told. It is set before the lock is
	// first used.
	Dropped func(m jsonrpc.Message, reason string)

	mu      sync.Mutex    // the lock that Lock takes
	dropped []era.Dropped // what Drop was told since Lock; guarded by mu
}

// Lock waits for the lock and takes it.
func (r *Mutex) Lock() { r.mu.Lock() }

// Unlock gives the lock back, and then tells Dropped what Drop was told.
func (r *Mutex) Unlock() {
	if len(r.dropped) == 0 { // mostly so
		r.mu.Unlock()
		return
	}
	r.unlockAndReport()
}

// unlockAndReport gives the lock back, and tells Dropped what Drop was told, of which there is something.
func (r *Mutex) unlockAndReport() {
	dropped := r.dropped
	r.dropped = nil
	r.mu.Unlock()
	for _, d := range dropped {
		r.Dropped(d.Message, d.Reason)
	}
}

// Drop notes that m reaches nobody, for that reason; Unlock tells Dropped. The caller holds the lock.
func (r *Mutex) Drop(m jsonrpc.Message, reason string) {
	if r.Dropped != nil {
		r.dropped = append(r.dropped, era.Dropped{Message: m, Reason: reason})
	}
}
