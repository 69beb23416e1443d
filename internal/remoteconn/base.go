package remoteconn

import (
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var (
	// ErrClosed is what a Conn's methods return after Close. If the Conn had ended before, they return the error of End.
	ErrClosed = errors.New("the connection to the server is closed")

	// ErrDuplicateID is what Send returns for a request with the id of another one in
	// progress: no answer could be told from the other's.
	ErrDuplicateID = errors.New("a request with this id is already in progress")
)

// How much of what the server has said may wait for Receive.
const (
	maxQueuedMessages = 64      // messages of the server that may wait for Receive
	maxQueuedBytes    = 1 << 20 // bytes of the server's messages that may wait for Receive; if none waits, one message of any size fits
)

// A Base is the life of a Conn, and the queue of what its server has said. It must not
// be copied.
//
// A Conn ends in one of two ways: by Close, or by itself (End). Then Context is done, and
// Receive returns why.
type Base struct {
	ctx          context.Context         // done when the Conn has ended; the cause is ErrClosed, or the error of End
	cancel       context.CancelCauseFunc // ends ctx
	inbox        bridge.Inbox            // what the server has said, for Receive
	shutdownOnce sync.Once               // lets Shutdown do its work once

	mu     sync.Mutex     // guards closed; held for a moment only: a caller may hold locks of its own
	closed bool           // Shutdown has begun
	wg     sync.WaitGroup // counts the goroutines of Go
}

// Init makes the Base ready for use. It must be called first.
func (b *Base) Init() {
	b.inbox.MaxMessages, b.inbox.MaxBytes = maxQueuedMessages, maxQueuedBytes
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
}

// Context returns a context that is done when the Conn has ended. The cause is ErrClosed, or the error of End.
func (b *Base) Context() context.Context { return b.ctx }

// Go runs f in a goroutine that Shutdown waits for. False: the Conn is closed, and f does not run.
func (b *Base) Go(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// Err returns why nothing may begin any more: because the Conn has ended, or ctx is done. nil: it may.
func (b *Base) Err(ctx context.Context) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return ctx.Err()
}

// Wait waits until ch is closed or has an element; or until ctx is done or the Conn has ended: then it
// returns what Err says.
func (b *Base) Wait(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch: // mostly so
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	return b.Err(ctx)
}

// Receive implements bridge.Conn. What came before the end of the Conn is handed on
// first, unless the Conn is closed.
func (b *Base) Receive(ctx context.Context, sink bridge.Sink) error {
	return b.inbox.Receive(ctx, sink)
}

// Deliver hands m to Receive: at once, in the goroutine of the caller, if nothing has to be
// waited for. Otherwise it waits for room, so that nobody reads what m came with, and
// TCP slows the server. The caller holds no lock. An error means that ctx is done or the Conn
// has ended, and m was dropped.
func (b *Base) Deliver(ctx context.Context, m jsonrpc.Message) error { return b.inbox.Send(ctx, m) }

// DeliverSink returns a Sink that hands messages to Receive: its Send is Deliver, and its TrySend takes a message only if
// that needs no waiting.
func (b *Base) DeliverSink() bridge.Sink { return &b.inbox }

// QueueErrorResponse hands m to Receive, and waits for room, as Deliver does. It is for an error response to what Send of
// the Conn was called with: it never calls the Sink but leaves that to the goroutine of Receive, because the
// caller of Send may hold locks. It returns ctx.Err(); if the Conn has ended, m is dropped without an error.
func (b *Base) QueueErrorResponse(ctx context.Context, m jsonrpc.Message) error {
	_ = b.inbox.Queue(ctx, m)
	return ctx.Err()
}

// End ends the Conn without Close, for the reason err: Receive returns err when it has handed on
// what waits, and Err returns it at once.
func (b *Base) End(err error) {
	b.inbox.End(err)
	b.cancel(err)
}

// Shutdown is what Close of a Conn calls. It ends the Conn, with ErrClosed if End was not called before, and drops what waits for
// Receive. It waits until all goroutines of Go have ended, and then calls last, which may be nil. A second call waits for the first
// one and does nothing else.
func (b *Base) Shutdown(last func()) {
	b.shutdownOnce.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.cancel(ErrClosed)
		b.inbox.Abort(context.Cause(b.ctx)) // of End, if it has ended before
		b.wg.Wait()
		if last != nil {
			last()
		}
	})
}

// Slots bound how many goroutines of one kind there are: they have an element for each slot that is taken, and their
// capacity is how many there are.
type Slots chan struct{}

// Acquire takes a slot, and waits for one. The error is that of b.Err: ctx is done, or the Conn has ended.
func (s Slots) Acquire(ctx context.Context, b *Base) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	return b.Err(ctx)
}

// TryAcquire takes a slot if one is free, and reports whether it has.
func (s Slots) TryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// IsOverHalfFull reports whether more than half of the slots are taken: then nobody should keep one to
// wait with.
func (s Slots) IsOverHalfFull() bool { return 2*len(s) > cap(s) }

// Release gives a slot back.
func (s Slots) Release() { <-s }
