package upstream

import (
	"context"
	"sync"
)

// A publicError is an error whose text clients may see (bridge.Serve).
type publicError string

// Error returns the text.
func (e publicError) Error() string { return string(e) }

// PublicError is what clients are told (bridge.Serve).
func (e publicError) PublicError() string { return string(e) }

// errClosed is the error for clients and goroutines of a Server that was closed.
const errClosed publicError = "the server is not configured any more"

// goroutines are the goroutines of a Server that Close waits for.
type goroutines struct {
	ctx    context.Context    // done when endAll is called
	cancel context.CancelFunc // ends ctx
	wg     sync.WaitGroup     // the goroutines

	mu    sync.Mutex // guards ended
	ended bool       // endAll was called
}

// spawn runs f in a goroutine for which Close waits; errClosed: the Server is closed, and f does not run.
func (t *goroutines) spawn(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return errClosed
	}
	t.wg.Go(f)
	return nil
}

// endAll ends ctx, and makes spawn fail from now on.
func (t *goroutines) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.cancel()
}
