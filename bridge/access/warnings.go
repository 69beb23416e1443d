package access

import (
	"sync"
	"time"
)

// Warnings limits the warnings about refused requests, so that no client, and no web page,
// can flood the log. The zero value is ready for use; any number of goroutines may use it.
type Warnings struct {
	mu          sync.Mutex
	windowStart time.Time
	n           int // since then
}

// Due counts a refusal, and reports whether to log it: it is one of the first ten in 15
// seconds.
func (w *Warnings) Due() bool {
	const most, per = 10, 15 * time.Second
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.windowStart) >= per {
		w.windowStart, w.n = now, 0
	}
	w.n++
	return w.n <= most
}
