package translate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a translated Conn's way to its server.

// Send implements bridge.Conn.
func (t *translated) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := t.waitRoom(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	if t.isOver() {
		err := t.endError()
		t.mu.Unlock()
		return err
	}
	s := &pendingSend{}
	t.filter.FromClient(time.Now(), m, &t.lastOut)
	t.markSaid(m.Mark())
	replies, quiet := len(t.lastOut.ToClient) > 0, len(t.lastOut.ToServer) == 0
	t.collect(s)
	t.mu.Unlock()
	if replies {
		t.in.Wake()
	}
	if quiet {
		return nil
	}
	return t.flush(ctx, s)
}

// TrySend implements bridge.Conn. What the filter has made of a message and the server
// does not take is left to write: if the server never takes a request of it, it has
// ended (lost). So it is tried only with a server that has taken the last message at once.
func (t *translated) TrySend(m jsonrpc.Message) bool {
	o := &t.out
	select {
	case o.turn <- struct{}{}:
	default:
		return false
	}
	defer func() { <-o.turn }()
	if !o.takenAtOnce || t.in.Waiting().Messages >= readAhead {
		return false
	}
	t.mu.Lock()
	if t.isOver() || !o.isEmpty() {
		t.mu.Unlock()
		return false
	}
	t.filter.FromClient(time.Now(), m, &t.lastOut)
	t.markSaid(m.Mark())
	said, replies := t.lastOut.ToServer, len(t.lastOut.ToClient) > 0
	t.lastOut.ToServer, o.spare = o.spare, nil
	t.collect(nil)
	t.mu.Unlock()
	if replies {
		t.in.Wake()
	}
	for i, m := range said {
		if i > 0 && t.isOverLocking() {
			break
		}
		if o.takenAtOnce = t.server.TrySend(m); !o.takenAtOnce {
			t.putBack(said[i:])
			break
		}
	}
	o.reuse(said)
	return true
}

// isOverLocking is isOver for those who do not hold mu.
func (t *translated) isOverLocking() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver()
}

// putBack leaves to write what the server has not taken. The caller has the turn.
func (t *translated) putBack(said []jsonrpc.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.out.putBack(said)
	}
}

// write writes what nobody's Send waits for.
func (t *translated) write() {
	for {
		select {
		case <-t.out.wake:
			_ = t.flush(context.Background(), nil)
		case <-t.done:
			return
		}
	}
}

// flush writes to the server, in order, until nothing is left, or only what
// others will write; what s has to say is written then.
func (t *translated) flush(ctx context.Context, s *pendingSend) error {
	select {
	case <-t.done:
		return io.ErrClosedPipe
	default:
	}
	o := &t.out
	select {
	case o.turn <- struct{}{}: // mostly at once, which a select with fewer cases finds out sooner
	default:
		select {
		case o.turn <- struct{}{}:
		case <-ctx.Done():
			return t.stopWaiting(s)
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
	defer func() { <-o.turn }()
	for {
		next, ok := t.next()
		if !ok {
			break
		}
		var err error
		if o.takenAtOnce = t.server.TrySend(next.m); !o.takenAtOnce {
			err = t.server.Send(ctx, next.m)
		}
		if err != nil && ctx.Err() != nil {
			return t.stopWaiting(s)
		}
		t.sent(next, err)
	}
	if s == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.err
}

// stopWaiting ends the wait of a Send. What it was to write is written later: the filter has
// taken the message, so Send says that it was taken.
func (t *translated) stopWaiting(s *pendingSend) error {
	signal(t.out.wake)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out.stopWaiting(s) {
		return nil
	}
	return s.err
}

// next returns the message that is to be written next, and leaves it where it is.
func (t *translated) next() (next outgoing, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return next, false
	}
	return t.out.first()
}

// sent takes away what next has returned, and says how it went to the Send that waits for
// it still.
func (t *translated) sent(next outgoing, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, ok := t.out.pop(); ok {
		next = now
	}
	switch {
	case err == nil:
	case next.waiter != nil:
		next.waiter.err = err
	case next.m.Kind() == jsonrpc.Request:
		t.failUnsent(err)
	}
}

// failUnsent is for a request that the server has not taken, and nobody's Send waits
// for: it must be answered, so this is the server's end. Mostly it has ended, and
// says in a moment why. It is called with mu held.
func (t *translated) failUnsent(err error) {
	if t.isOver() {
		return
	}
	t.why = cmp.Or(t.why, err)
	t.stalled.AtLatest(time.Now().Add(say.MaxWait))
}

// giveUp ends the Conn because of a request that the server has not taken.
func (t *translated) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.finish(time.Now(), t.why)
	}
}

// endError returns why nothing can be sent. It is called with mu held.
func (t *translated) endError() error {
	if t.closed || errors.Is(t.ended, io.EOF) {
		return io.ErrClosedPipe
	}
	return fmt.Errorf("the server has ended: %w", t.ended)
}
