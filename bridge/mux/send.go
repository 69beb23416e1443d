package mux

import (
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a client's way to the server of a Mux.

// submit sends a client's message to the server, which it waits for; call is nil for a notification. It returns nil
// also if the call was answered with an error meanwhile.
func (x *Mux) submit(ctx context.Context, c *conn, call *call, m jsonrpc.Message) error {
	s, err := x.awaitServer(ctx, c, call)
	if s == nil {
		if call == nil && err == nil {
			x.reportDropped(m, "there is no server")
		}
		return err
	}
	if s.writeDirectly(call, m) {
		return nil
	}
	s.queued.Add(1)
	it := outItem{call: call, m: m}
	if m.Size() > budget.UncountedBytes { // it shall not be in the queue uncounted
		it.written = make(chan struct{})
	}
	select {
	case s.out <- it:
		if isClosed(s.allAnswered) { // and perhaps nobody looks into out any more
			s.discardQueued()
		}
		if it.written == nil {
			return nil
		}
		select {
		case <-it.written:
			return nil
		case <-s.allAnswered:
			return nil
		case <-c.doneChan():
			return c.ended()
		case <-ctx.Done():
		}
	case <-s.allAnswered: // a call was answered
		if call == nil {
			x.reportDropped(m, "the server has ended")
		}
		return nil
	case <-c.doneChan():
		s.queued.Add(-1)
		return c.ended()
	case <-ctx.Done():
		s.queued.Add(-1)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.giveUpSend(ctx, call)
}

// outItem is a message that waits for the writer.
type outItem struct {
	call    *call           // the call of a request; nil: it is a notification
	m       jsonrpc.Message // the message, as the client has sent it
	written chan struct{}   // closed when the writer is done with the message, written or not; not closed if the server ends before that (see allAnswered); nil: nobody waits for it
}

// writeDirectly writes a message in the caller's goroutine, if nobody writes, nothing waits to be written, and the
// server takes it at once. done is true, too, if the call is no longer wanted; false: the message has to be written
// otherwise.
func (s *server) writeDirectly(call *call, m jsonrpc.Message) (done bool) {
	if m.Size() > maxDirectSize || s.queued.Load() > 0 || !s.writeMu.TryLock() {
		return false
	}
	defer s.writeMu.Unlock()
	m, ok := s.withServerIDs(call, m)
	if !ok || s.conn.TrySend(m) {
		return true
	}
	if call != nil {
		s.mux.mu.Lock()
		if call.server == s {
			call.written = false
		}
		s.mux.mu.Unlock()
	}
	return false
}

// giveUpSend cancels the call of a Send whose ctx is done, and returns the error of Send, which says that no answer
// will come; nil: the call was answered at the same time. It is called with mu held.
func (x *Mux) giveUpSend(ctx context.Context, call *call) error {
	if call != nil && call.removed {
		return nil // answered at the same time
	}
	if call != nil {
		x.cancelCall(call, goneReason, nil, nil) // a subscription may have got there all the same
		call.conn.withdrawUnread(call.id)
	}
	return ctx.Err()
}

// awaitServer returns the server, as soon as there is one, and makes it the call's. It returns nil, nil if the call
// has been answered or cancelled before, or if no server was to be had. call is nil for a notification.
func (x *Mux) awaitServer(ctx context.Context, c *conn, call *call) (*server, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	failed := x.serverState.dialFailures
	if x.serverState.server == nil {
		x.serverState.waitingSends++
		defer func() {
			if x.serverState.dialFailures == failed {
				x.serverState.waitingSends--
			}
		}()
	}
	for {
		switch {
		case call != nil && call.removed, c.removed:
			return nil, c.ended()
		case x.serverState.server != nil:
			if call != nil {
				call.server = x.serverState.server
			}
			return x.serverState.server, nil
		case call == nil && (x.serverState.dialFailures != failed || x.serverState.breaker.isOpen(time.Now())):
			return nil, nil
		}
		if !x.keepConnectedRuns {
			x.keepConnectedRuns = true
			x.wg.Go(x.keepConnected)
		}
		signal(x.wake)
		changed := x.serverState.changed
		x.mu.Unlock()
		select {
		case <-changed:
		case <-c.doneChan():
		case <-ctx.Done():
		}
		x.mu.Lock()
		if ctx.Err() != nil {
			return nil, x.giveUpSend(ctx, call)
		}
	}
}
