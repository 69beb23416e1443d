package bridge

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file goes when nothing is a PullConn any more.

// A PullConn carries whole messages to and from one MCP peer, in order.
//
// One goroutine at a time may call Recv; any number may call Send. Both
// return when their ctx is done, and a transport may then close the Conn if
// it cannot otherwise keep the framing whole.
type PullConn interface {
	// Recv returns the next message from the peer. It returns io.EOF after a
	// clean end: the peer will send nothing more but can still be sent to,
	// until Close. Any other error means that the peer is gone.
	Recv(ctx context.Context) (jsonrpc.Message, error)

	// Send hands m to the peer. It waits while the peer does not take what
	// was sent before: backpressure, never an unbounded queue. It returns when the
	// message was written, or queued where the transport answers each message on its own.
	Send(ctx context.Context, m jsonrpc.Message) error

	// Close ends the conversation the way the transport does it and returns
	// when every goroutine and process that the Conn started has ended. It is
	// idempotent, may be called concurrently, and unblocks Recv and Send.
	Close() error
}

// Push returns a Conn that is c. Push of what Pull has returned is what that was made of.
func Push(c PullConn) Conn {
	if p, ok := c.(*pulled); ok {
		return p.conn
	}
	return &pushed{c: c}
}

type pushed struct {
	c       PullConn
	once    sync.Once
	try     func(jsonrpc.Message) bool
	refused jsonrpc.Message
}

func (p *pushed) Send(ctx context.Context, m jsonrpc.Message) error { return p.c.Send(ctx, m) }

func (p *pushed) TrySend(m jsonrpc.Message) bool {
	p.once.Do(func() { p.try = TrySender(p.c) })
	return p.try != nil && p.try(m)
}

func (p *pushed) Close(reason error) error { return closeFor(p.c, reason) }

func (p *pushed) Receive(ctx context.Context, sink Sink) error {
	watch := NewStallWatch(ctx, HungUp(p.c))
	defer watch.Stop()
	var failed error
	hand := func(m jsonrpc.Message) bool {
		if failed = watch.Send(sink, m); failed != nil {
			p.refused = m
		}
		return failed == nil
	}
	if m := p.refused; m.Kind() != jsonrpc.Invalid {
		p.refused = jsonrpc.Message{}
		if !hand(m) {
			return failed
		}
	}
	take := func(m jsonrpc.Message, mayWait bool) (took, more bool) {
		switch {
		case mayWait:
			return true, hand(m)
		case sink.TrySend(m):
			return true, true
		}
		return false, true
	}
	for {
		m, err := Offer(ctx, p.c, take)
		switch {
		case err == ErrEnough:
			return failed
		case err != nil:
			return err
		case !hand(m):
			return failed
		}
	}
}

// Pull returns a PullConn that is c. Pull of what Push has returned is what that was made of.
func Pull(c Conn) PullConn {
	if p, ok := c.(*pushed); ok && p.refused.Kind() == jsonrpc.Invalid {
		return p.c
	}
	p := &pulled{conn: c, got: make(chan jsonrpc.Message), ended: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

type pulled struct {
	conn  Conn
	got   chan jsonrpc.Message
	ended chan struct{}
	err   error
	ctx   context.Context
	stop  context.CancelFunc
	once  sync.Once
	wg    sync.WaitGroup
}

func (p *pulled) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return jsonrpc.Message{}, err
	}
	p.once.Do(func() {
		p.wg.Go(func() {
			defer close(p.ended)
			if p.err = p.conn.Receive(p.ctx, pullSink{p.got}); p.ctx.Err() != nil {
				p.err = io.ErrClosedPipe
			}
		})
	})
	select {
	case m := <-p.got:
		return m, nil
	case <-p.ended:
		return jsonrpc.Message{}, p.err
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

type pullSink struct{ got chan<- jsonrpc.Message }

func (s pullSink) TrySend(m jsonrpc.Message) bool { return false }

func (s pullSink) Send(ctx context.Context, m jsonrpc.Message) error {
	select {
	case s.got <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pulled) Send(ctx context.Context, m jsonrpc.Message) error { return p.conn.Send(ctx, m) }

func (p *pulled) TrySender() func(jsonrpc.Message) bool { return p.conn.TrySend }

func (p *pulled) Close() error { return p.CloseFor(nil) }

func (p *pulled) CloseFor(reason error) error {
	err := p.conn.Close(reason)
	p.stop()
	p.wg.Wait()
	return err
}

// PullPipe is Pipe.
func PullPipe() (a, b PullConn) {
	x, y := Pipe()
	return Pull(x), Pull(y)
}

// PullHandler is a HandlerFunc of a function that pulls.
func PullHandler(f func(ctx context.Context, client PullConn) error) HandlerFunc {
	return func(ctx context.Context, client Conn) error { return f(ctx, Pull(client)) }
}

// PushDialed is Push of what a Dialer returns.
func PushDialed(c PullConn, err error) (Conn, error) {
	if err != nil {
		return nil, err
	}
	return Push(c), nil
}

// PullDialed is Pull of what a Dialer returns.
func PullDialed(c Conn, err error) (PullConn, error) {
	if err != nil {
		return nil, err
	}
	return Pull(c), nil
}
