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
	// Dropped is told of each message, and why it reaches nobody; nil: nobody is. It
	// is set before the lock is first used.
	Dropped func(m jsonrpc.Message, reason string)

	mu      sync.Mutex
	dropped []era.Dropped // what Drop was told since Lock; under mu
}

// Lock takes the lock.
func (r *Mutex) Lock() { r.mu.Lock() }

// Unlock gives the lock back, and then reports what Drop was told.
func (r *Mutex) Unlock() {
	if len(r.dropped) == 0 { // mostly so
		r.mu.Unlock()
		return
	}
	r.unlockAndReport()
}

func (r *Mutex) unlockAndReport() {
	dropped := r.dropped
	r.dropped = nil
	r.mu.Unlock()
	for _, d := range dropped {
		r.Dropped(d.Message, d.Reason)
	}
}

// Drop notes that m reaches nobody; Unlock reports it. The caller holds the lock.
func (r *Mutex) Drop(m jsonrpc.Message, reason string) {
	if r.Dropped != nil {
		r.dropped = append(r.dropped, era.Dropped{Message: m, Reason: reason})
	}
}
