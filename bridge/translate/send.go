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

// Send implements bridge.Conn. If ctx ends while the server takes nothing, runWriter writes what
// the filter has made of m, and Send returns nil.
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

// TrySend implements bridge.Conn. Once the filter has m, TrySend says that m was taken:
// runWriter writes what the server does not take at once, and if it cannot write a request, the
// Conn ends (failUnsent). So m is tried only with a server that has taken the last message at
// once.
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

// isOverLocking is isOver for those who do not hold mu.
func (t *translatedConn) isOverLocking() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOver()
}

// putBack leaves to runWriter what the server has not taken. The caller has the writeTurn.
func (t *translatedConn) putBack(messages []jsonrpc.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.toServer.putBack(messages)
	}
}

// runWriter writes what nobody's Send waits for.
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

// flush writes what is in the queue to the server, in order, until nothing is left. Then it
// returns how that went for the Send s; nil: of none. If ctx ends before, runWriter writes the
// rest.
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

// stopWaiting ends the wait of the Send s. What is left of its messages is written later by
// runWriter, and Send returns nil: the filter has taken its message.
func (t *translatedConn) stopWaiting(s *pendingSend) error {
	signal(t.toServer.wakeWriter)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.toServer.stopWaiting(s) {
		return nil
	}
	return s.err
}

// peekNext returns the message that is to be written next, and leaves it in the queue. The caller has
// the writeTurn.
func (t *translatedConn) peekNext() (next outgoing, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return next, false
	}
	return t.toServer.first()
}

// noteSent takes the message that peekNext has returned off the queue. err is how the write
// went. A Send that still waits for this message returns err. If no Send waits and a request was
// not written, the Conn ends soon (failUnsent). The caller has the writeTurn.
func (t *translatedConn) noteSent(next outgoing, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now, ok := t.toServer.pop(); ok {
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

// failUnsent ends the Conn in a moment, because the server has not taken a request that no Send
// waits for: somebody must answer it. Mostly the server has ended, and says why in that moment.
// It is called with mu held.
func (t *translatedConn) failUnsent(err error) {
	if t.isOver() {
		return
	}
	t.stalledErr = cmp.Or(t.stalledErr, err)
	t.stallTimer.SetAtLatest(time.Now().Add(ownmsg.FinalSendTimeout))
}

// endUnsent ends the Conn because of a request that the server has not taken. stallTimer calls
// it.
func (t *translatedConn) endUnsent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isOver() {
		t.finish(time.Now(), t.stalledErr)
	}
}

// endError returns why nothing can be sent. It is called with mu held.
func (t *translatedConn) endError() error {
	if t.closed || errors.Is(t.receiveErr, io.EOF) {
		return io.ErrClosedPipe
	}
	return fmt.Errorf("the server has ended: %w", t.receiveErr)
}
