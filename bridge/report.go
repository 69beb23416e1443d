package bridge

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reportMutex is a mutex under which messages turn out to reach nobody. What drop
// was told of is reported by Unlock, in the same goroutine, when the lock is free
// again: report may take its time, or use what the lock guards. Until it is used,
// report may be set; nil: nobody is told. The zero value is unlocked.
type reportMutex struct {
	mu      sync.Mutex
	report  func(m jsonrpc.Message, reason string)
	dropped []era.Dropped // under mu
}

func (r *reportMutex) Lock() { r.mu.Lock() }

func (r *reportMutex) Unlock() {
	if len(r.dropped) == 0 { // mostly so
		r.mu.Unlock()
		return
	}
	r.unlockAndReport()
}

func (r *reportMutex) unlockAndReport() {
	dropped := r.dropped
	r.dropped = nil
	r.mu.Unlock()
	for _, d := range dropped {
		r.report(d.Message, d.Reason)
	}
}

// drop says that m reaches nobody. It is called with the lock held.
func (r *reportMutex) drop(m jsonrpc.Message, reason string) {
	if r.report != nil {
		r.dropped = append(r.dropped, era.Dropped{Message: m, Reason: reason})
	}
}
