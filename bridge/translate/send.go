package translate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a translated Conn's way to its server.

// Send implements bridge.Conn: it gives the filter m, and writes to the server what the filter has made of it. If ctx ends
// while the server takes nothing, runWriter writes that, and Send returns nil.
func (t *translatedConn) Send(ctx context.Context, m jsonrpc.Message) error {
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
	t.markSources(m.Mark())
	replies, quiet := len(t.lastOut.ToClient) > 0, len(t.lastOut.ToServer) == 0
	t.collectOutput(s)
	t.mu.Unlock()
	if replies {
		t.toClient.Wake()
	}
	if quiet {
		return nil
	}
	return t.flush(ctx, s)
}

// TrySend implements bridge.Conn. It gives the filter m only if the server has taken the last message at once, for
// then m counts as taken: what the server does not take at once, runWriter writes, and if that cannot write a request,
// the Conn ends (failUnsent).
func (t *translatedConn) TrySend(m jsonrpc.Message) bool {
	o := &t.toServer
	select {
	case o.writeTurn <- struct{}{}:
	default:
		return false
	}
	defer func() { <-o.writeTurn }()
	if !o.takenAtOnce || t.toClient.Waiting().Messages >= maxReadAhead {
		return false
	}
	t.mu.Lock()
	if t.isOver() || !o.isEmpty() {
		t.mu.Unlock()
		return false
	}
	t.filter.FromClient(time.Now(), m, &t.lastOut)
	t.markSources(m.Mark())
	messages, replies := t.lastOut.ToServer, len(t.lastOut.ToClient) > 0
	t.lastOut.ToServer, o.spare = o.spare, nil
	t.collectOutput(nil)
	t.mu.Unlock()
	if replies {
		t.toClient.Wake()
	}
	for i, m := range messages {
		if i > 0 && t.isOverLocking() {
			break
		}
		if o.takenAtOnce = t.server.TrySend(m); !o.takenAtOnce {
			t.putBack(messages[i:])
			break
		}
	}
	o.reuse(messages)
	return true
}

// isOverLocking reports whether the Conn was closed, or nothing more comes from the server. It is called without mu.
func (t *translatedConn) isOverLocking() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver()
}

// putBack puts messages that the server has not taken at the head of the queue, for runWriter. The caller has the
// writeTurn.
func (t *translatedConn) putBack(messages []jsonrpc.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.toServer.putBack(messages)
	}
}

// runWriter is the goroutine that writes those messages to the server for which no Send waits, until Close.
func (t *translatedConn) runWriter() {
	for {
		select {
		case <-t.toServer.wakeWriter:
			_ = t.flush(context.Background(), nil)
		case <-t.done:
			return
		}
	}
}

// flush writes the queue to the server, in order, until it is empty. Then it returns the error for the Send s; s may
// be nil. If ctx ends before, it leaves the rest to runWriter.
func (t *translatedConn) flush(ctx context.Context, s *pendingSend) error {
	select {
	case <-t.done:
		return io.ErrClosedPipe
	default:
	}
	o := &t.toServer
	select {
	case o.writeTurn <- struct{}{}: // mostly at once, which a select with fewer cases finds out sooner
	default:
		select {
		case o.writeTurn <- struct{}{}:
		case <-ctx.Done():
			return t.stopWaiting(s)
		case <-t.done:
			return io.ErrClosedPipe
		}
	}
	defer func() { <-o.writeTurn }()
	for {
		next, ok := t.peekNext()
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
		t.noteSent(next, err)
	}
	if s == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.err
}

// stopWaiting ends the wait of the Send s, whose ctx has ended, and returns what Send returns: nil if messages of s
// are left, which runWriter writes later, as the filter has taken the message.
func (t *translatedConn) stopWaiting(s *pendingSend) error {
	signal(t.toServer.wakeWriter)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.toServer.stopWaiting(s) {
		return nil
	}
	return s.err
}

// peekNext returns the message that is to be written next, which stays in the queue; ok is false if there is none, or
// after Close. The caller has the writeTurn.
func (t *translatedConn) peekNext() (next outgoing, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return next, false
	}
	return t.toServer.first()
}

// noteSent is called when the message of peekNext was written, or failed with err: it takes it out of the queue. A
// Send that waits for the message returns err, unless an earlier message of that Send was written. If no Send returns
// err, and it was a request that was not written, the Conn ends soon (failUnsent). The caller has the writeTurn.
func (t *translatedConn) noteSent(next outgoing, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, ok := t.toServer.pop(); ok {
		next = now
	}
	if err != nil && next.m.Kind() == jsonrpc.Request {
		t.toServer.failed = append(t.toServer.failed, next.m.ID())
	}
	switch {
	case err == nil && next.waiter != nil:
		next.waiter.wrote = true
	case err == nil:
	case next.waiter != nil && !next.waiter.wrote: // else the server has got a part of what the Send was given
		next.waiter.err = err
	case next.m.Kind() == jsonrpc.Request:
		t.failUnsent(err)
	}
}

// failUnsent has stallTimer end the Conn in a moment, because the server has not taken a request, with the error err
// that no Send returns: somebody must answer it. Mostly the server has ended, and says why in that moment. It is
// called with mu held.
func (t *translatedConn) failUnsent(err error) {
	if t.isOver() {
		return
	}
	t.stalledErr = cmp.Or(t.stalledErr, err)
	t.stallTimer.SetAtLatest(time.Now().Add(ownmsg.FinalSendTimeout))
}

// endUnsent ends the Conn for the reason that failUnsent has noted. stallTimer calls it.
func (t *translatedConn) endUnsent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.finish(time.Now(), t.stalledErr)
	}
}

// endError returns the error of Send once the Conn is over. It is called with mu held.
func (t *translatedConn) endError() error {
	if t.closed || errors.Is(t.receiveErr, io.EOF) {
		return io.ErrClosedPipe
	}
	return fmt.Errorf("the server has ended: %w", t.receiveErr)
}
