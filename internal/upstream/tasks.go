package upstream

import (
	"context"
	"sync"
)

// publicError is an error that clients may see (bridge.Serve).
type publicError string

func (e publicError) Error() string       { return string(e) }
func (e publicError) PublicError() string { return string(e) }

const errClosed publicError = "the server is not configured any more"

// goroutines are the goroutines of a Server that Close waits for.
type goroutines struct {
	ctx    context.Context // ends with endAll
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	ended bool
}

// spawn runs f in a goroutine of its own; errClosed: the Server is closed.
func (t *goroutines) spawn(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errClosed
	}
	t.wg.Go(f)
	return nil
}

// endAll lets nothing begin any more, and ends ctx.
func (t *goroutines) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.cancel()
}
