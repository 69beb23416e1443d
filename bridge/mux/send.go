package mux

import (
	"context"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a client's way to the server of a Mux.

// submit sends a client's message to the server, which it waits for; call is nil for a notification. It returns nil
// also if the call was answered with an error meanwhile. If a server ends that has not taken a call, the next one gets
// it.
func (x *Mux) submit(ctx context.Context, c *conn, call *call, m jsonrpc.Message) error {
	for {
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
		if again, err := s.enqueue(ctx, c, call, m); !again {
			return err
		}
	}
}

// enqueue has the writer send a client's message, and waits until there is room in the queue, with a large message
// also until it is written. again: the server has ended, and the caller still has the call to send. The error says that
// ctx is done, or the Conn c has ended.
func (s *server) enqueue(ctx context.Context, c *conn, call *call, m jsonrpc.Message) (again bool, err error) {
	it := outItem{call: call, m: m}
	if m.Size() > budget.UncountedBytes { // it shall not be in the queue uncounted
		it.written = make(chan struct{})
	}
	if call != nil && !s.leaveToWriter(it) {
		return s.mux.isBackWithSender(call), nil
	}
	s.queued.Add(1)
	select {
	case s.out <- it:
		if isClosed(s.allAnswered) { // and perhaps nobody looks into out any more
			s.discardQueued()
		}
	case <-s.allAnswered: // a call was answered, or is passed on
		if call == nil {
			s.mux.reportDropped(m, "the server has ended")
		}
	case <-c.doneChan():
		s.queued.Add(-1)
		return false, c.ended()
	case <-ctx.Done():
		s.queued.Add(-1)
		return false, s.mux.giveUpSendLocking(ctx, call)
	}
	if it.written == nil {
		return false, nil
	}
	return s.awaitWritten(ctx, c, it)
}

// awaitWritten waits until a large message is written, or the server has ended. again: the server has ended, and the caller
// still has the call to send. The error says that ctx is done, or the Conn c has ended.
func (s *server) awaitWritten(ctx context.Context, c *conn, it outItem) (again bool, err error) {
	ended := s.allAnswered
	for {
		select {
		case <-it.written:
			return it.call != nil && s.mux.isBackWithSender(it.call), nil
		case <-ended:
			if it.call == nil || !s.has(it.call) {
				return it.call != nil && s.mux.isBackWithSender(it.call), nil
			}
			ended = nil // the writer is writing it, and will say what came of that
		case <-c.doneChan():
			return false, c.ended()
		case <-ctx.Done():
			return false, s.mux.giveUpSendLocking(ctx, it.call)
		}
	}
}

// outItem is a message that waits for the writer.
type outItem struct {
	call    *call           // the call of a request; nil: it is a notification, or the bridge's own
	m       jsonrpc.Message // the message; a request has the client's own id
	written chan struct{}   // closed when the writer is done with the message, written or not; not closed if the server ends before that (see allAnswered); nil: nobody waits for it
}

// signalDone tells who waits for the message that the writer is done with it.
func (it outItem) signalDone() {
	if it.written != nil {
		close(it.written)
	}
}

// writeDirectly writes a message in the caller's goroutine, if nobody writes, nothing waits to be written, and the
// server takes it at once. false: the message has to be written otherwise, or the call is no longer wanted.
func (s *server) writeDirectly(call *call, m jsonrpc.Message) (done bool) {
	if m.Size() > maxDirectSize || s.queued.Load() > 0 || !s.writeMu.TryLock() {
		return false
	}
	defer s.writeMu.Unlock()
	m, ok := s.withServerIDs(call, m)
	if !ok {
		return false
	}
	taken := s.conn.TrySend(m)
	s.endWrite(outItem{call: call}, taken)
	return taken
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

// giveUpSendLocking cancels the call of a Send whose ctx is done (giveUpSend), and returns the error of Send; nil: the call
// was answered at the same time. call is nil for a notification. It is called without mu, which it takes.
func (x *Mux) giveUpSendLocking(ctx context.Context, call *call) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.giveUpSend(ctx, call)
}

// awaitServer returns the server, as soon as there is one, and makes it the call's. It returns nil, nil if the call
// has been answered or cancelled before, which it is if no server is to be had, and for a notification if no server is to
// be had; call is nil then. The error says that ctx is done, or the Conn c has ended.
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
