package translate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a translated Conn's way to its server.

// write writes what nobody's Send waits for.
func (t *translated) write() {
	for {
		select {
		case <-t.unsent:
			_ = t.flush(context.Background(), nil)
		case <-t.done:
			return
		}
	}
}

// flush writes to the server, in order, until nothing is left, or only what
// others will write; what s has to say is written then.
func (t *translated) flush(ctx context.Context, s *sender) error {
	select {
	case <-t.done:
		return io.ErrClosedPipe
	default:
	}
	select {
	case t.turn <- struct{}{}: // mostly at once, which a select with fewer cases finds out sooner
	default:
		select {
		case t.turn <- struct{}{}:
		case <-ctx.Done():
			signal(t.unsent) // it is the filter's word now: it must get there
			return ctx.Err()
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
	defer func() { <-t.turn }()
	for {
		next, ok := t.first()
		if !ok {
			break
		}
		err := t.server.Send(ctx, next.m)
		if err != nil && ctx.Err() != nil {
			signal(t.unsent)
			return err
		}
		t.sent()
		switch {
		case err == nil:
		case next.sender != nil:
			next.sender.err = err
		case next.m.Kind() == jsonrpc.Request:
			t.lost(err)
		}
	}
	if s == nil {
		return nil
	}
	return s.err
}

// lost is for a request that the server has not taken, and nobody's Send waited
// for: it must be answered, so this is the server's end. Mostly it has ended, and
// says in a moment why.
func (t *translated) lost(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ended != nil {
		return
	}
	t.why = cmp.Or(t.why, err)
	t.broken.AtLatest(time.Now().Add(say.MaxWait))
}

// giveUp ends the Conn because of a request that the server has not taken.
func (t *translated) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && t.ended == nil {
		t.finish(time.Now(), t.why)
	}
}

// first returns the message that is to be written next, and leaves it.
func (t *translated) first() (next outgoing, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.toServer.Len() == 0 || t.closed {
		return next, false
	}
	return t.toServer.Rest()[0], true
}

// sent takes away what first has returned.
func (t *translated) sent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.toServer.Len() == 0 { // the server has ended
		return
	}
	if t.toServer.Pop().last {
		t.unheard--
	}
}

// Send implements Conn.
func (t *translated) Send(ctx context.Context, m jsonrpc.Message) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.mu.Lock()
		if t.closed || t.ended != nil {
			err := t.gone()
			t.mu.Unlock()
			return err
		}
		if t.toClient.Len() < readAhead {
			break
		}
		t.mu.Unlock()
		if err := t.waitRoom(ctx); err != nil {
			return err
		}
	}
	s := &sender{}
	t.filter.FromClient(time.Now(), m, &t.out)
	quiet := len(t.out.ToServer) == 0
	t.collect(s)
	t.mu.Unlock()
	if quiet {
		return nil
	}
	return t.flush(ctx, s)
}

// TrySender is what bridge.TrySender says. What the filter has made of a message
// and the server does not take is left to write: if the server never takes a
// request of it, it has ended (lost).
func (t *translated) TrySender() func(m jsonrpc.Message) bool {
	if t.try == nil {
		return nil
	}
	return t.trySend
}

func (t *translated) trySend(m jsonrpc.Message) bool {
	select {
	case t.turn <- struct{}{}:
	default:
		return false
	}
	defer func() { <-t.turn }()
	t.mu.Lock()
	if t.closed || t.ended != nil || t.toServer.Len() > 0 || t.toClient.Len() >= readAhead {
		t.mu.Unlock()
		return false
	}
	t.filter.FromClient(time.Now(), m, &t.out)
	said := t.out.ToServer
	t.out.ToServer, t.spare = t.spare, nil
	t.collect(nil)
	t.mu.Unlock()
	for i, m := range said {
		if i > 0 && t.isOver() || !t.try(m) {
			t.putBack(said[i:])
			break
		}
	}
	if cap(said) <= fifo.Kept {
		clear(said)
		t.spare = said[:0]
	}
	return true
}

// isOver reports whether nothing may be written any more: all that was owed is answered.
func (t *translated) isOver() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed || t.ended != nil
}

// putBack leaves to write what the server has not taken, ahead of all that came
// after it. The caller has the turn.
func (t *translated) putBack(said []jsonrpc.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ended != nil {
		return
	}
	after := slices.Clone(t.toServer.Rest())
	t.toServer = fifo.Queue[outgoing]{}
	for _, m := range said {
		t.toServer.Push(outgoing{m: m})
	}
	t.leaveToWrite(len(said))
	t.toServer.Push(after...)
}

// gone returns why nothing can be sent. It is called with mu held.
func (t *translated) gone() error {
	if t.closed || errors.Is(t.ended, io.EOF) {
		return io.ErrClosedPipe
	}
	return fmt.Errorf("the server has ended: %w", t.ended)
}
