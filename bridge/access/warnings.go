package access

import (
	"sync"
	"time"
)

// WarningLimiter limits the warnings about what clients can bring about, such as refused requests, so that
// no client, and no web page, can flood the log. The zero value is ready for use; any number of goroutines may use
// it.
type WarningLimiter struct {
	mu          sync.Mutex // guards windowStart and count
	windowStart time.Time  // when the 15 seconds began in which warnings are counted
	count       int        // how many calls of Allow there were since windowStart
}

// Allow counts a warning, and reports whether to log it: it is one of the first ten in 15
// seconds.
func (w *WarningLimiter) Allow() bool {
	const most, per = 10, 15 * time.Second
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.windowStart) >= per {
		w.windowStart, w.count = now, 0
	}
	w.count++
	return w.count <= most
}
