package access

import (
	"sync"
	"time"
)

// Warnings says which refused requests are worth a warning. Nobody must be able
// to flood the log with them, a web page least of all. The zero value works;
// any number of goroutines may use it.
type Warnings struct {
	mu    sync.Mutex
	since time.Time
	n     int // since then
}

// Due reports whether the refusal that has happened now is one of the first ten
// in a quarter of a minute.
func (w *Warnings) Due() bool {
	const most, per = 10, 15 * time.Second
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.since) >= per {
		w.since, w.n = now, 0
	}
	w.n++
	return w.n <= most
}
