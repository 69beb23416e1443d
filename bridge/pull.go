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

func (p *pushed) Receive(parent context.Context, sink Sink) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	OnSlow(p.c, func() { cancel(ErrSlow) })
	err := p.receive(ctx, sink)
	if context.Cause(ctx) == ErrSlow && parent.Err() == nil {
		return ErrSlow
	}
	return err
}

func (p *pushed) receive(ctx context.Context, sink Sink) error {
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
	return &pulled{conn: c}
}

type pulled struct {
	conn Conn
}

func (p *pulled) Recv(ctx context.Context) (jsonrpc.Message, error) { return p.Offer(ctx, nil) }

// Offer receives until there is a message that take does not take.
func (p *pulled) Offer(ctx context.Context, take Taker) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return jsonrpc.Message{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &pullSink{p: p, take: take, stop: stop}
	err := p.conn.Receive(ctx, s)
	switch {
	case s.left:
		return s.m, nil
	case s.enough:
		err = ErrEnough
	}
	return jsonrpc.Message{}, err
}

type pullSink struct {
	p      *pulled
	take   Taker
	stop   context.CancelFunc
	enough bool
	left   bool // m was not taken
	m      jsonrpc.Message
}

func (s *pullSink) TrySend(m jsonrpc.Message) bool { return s.offer(m, false) }

func (s *pullSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.offer(m, true) {
		return nil
	}
	return errSeen
}

func (s *pullSink) offer(m jsonrpc.Message, mayWait bool) bool {
	switch {
	case s.left || s.enough:
		return false
	}
	took, more := false, true
	if s.take != nil {
		took, more = s.take(m, mayWait)
	}
	if !took {
		s.left, s.m = true, m
		s.stop()
		return true
	}
	if !more {
		s.enough = true
		s.stop()
	}
	return true
}

func (p *pulled) HungUp() func() error {
	if h, ok := p.conn.(interface{ HungUp() func() error }); ok {
		return h.HungUp()
	}
	return nil
}

func (p *pulled) Send(ctx context.Context, m jsonrpc.Message) error { return p.conn.Send(ctx, m) }

func (p *pulled) TrySender() func(jsonrpc.Message) bool { return p.conn.TrySend }

func (p *pulled) Close() error { return p.CloseFor(nil) }

func (p *pulled) CloseFor(reason error) error { return p.conn.Close(reason) }

// PullPipe is Pipe.
func PullPipe() (a, b PullConn) {
	ab := make(chan jsonrpc.Message, defaultInbox)
	ba := make(chan jsonrpc.Message, defaultInbox)
	x := &pullEnd{in: ba, out: ab, closed: make(chan struct{})}
	y := &pullEnd{in: ab, out: ba, closed: make(chan struct{})}
	x.peer, y.peer = y, x
	return x, y
}

type pullEnd struct {
	in     <-chan jsonrpc.Message
	out    chan<- jsonrpc.Message
	peer   *pullEnd
	once   sync.Once
	closed chan struct{}
}

// Recv implements Conn.
func (p *pullEnd) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return jsonrpc.Message{}, err
	}
	if isClosed(p.closed) {
		return jsonrpc.Message{}, io.ErrClosedPipe
	}
	select {
	case m := <-p.in:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-p.closed:
		return jsonrpc.Message{}, io.ErrClosedPipe
	case <-p.peer.closed:
	}
	select { // what was sent before the end still counts
	case m := <-p.in:
		return m, nil
	default:
		return jsonrpc.Message{}, io.EOF
	}
}

// Send implements Conn.
func (p *pullEnd) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isClosed(p.closed) || isClosed(p.peer.closed) {
		return io.ErrClosedPipe // before select, which would choose at random
	}
	select {
	case p.out <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
	case <-p.peer.closed:
	}
	return io.ErrClosedPipe
}

// TrySender is what TrySender says.
func (p *pullEnd) TrySender() func(m jsonrpc.Message) bool { return p.trySend }

func (p *pullEnd) trySend(m jsonrpc.Message) bool {
	if isClosed(p.closed) || isClosed(p.peer.closed) {
		return false
	}
	select {
	case p.out <- m:
		return true
	default:
		return false
	}
}

// Close implements Conn.
func (p *pullEnd) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Keeps reports whether server keeps requests until they are answered, as one does
// that translates them. It is replaced by PumpOptions.Keeps.
func Keeps(server PullConn) bool {
	for {
		switch c := server.(type) {
		case interface{ Keeps() bool }:
			return c.Keeps()
		case interface{ Unwrap() PullConn }:
			server = c.Unwrap()
		default:
			return false
		}
	}
}

// Unread returns c with messages that were received from it already, which
// Recv returns first, also if its ctx is done. Nobody may be in Recv, or use c
// itself afterwards.
//
// A Conn that can take them back itself has a method Unread(...jsonrpc.Message).
func Unread(c PullConn, early ...jsonrpc.Message) PullConn {
	if t, ok := c.(interface{ Unread(...jsonrpc.Message) }); ok {
		t.Unread(early...)
		return c
	}
	u := &unread{PullConn: c, early: early}
	u.from, _ = c.(Offerer)
	return u
}

type unread struct {
	PullConn
	from  Offerer // Conn; nil: it is none
	early []jsonrpc.Message
}

func (u *unread) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if len(u.early) > 0 {
		m := u.early[0]
		u.early[0] = jsonrpc.Message{} // its bytes are not kept
		u.early = u.early[1:]
		return m, nil
	}
	return u.PullConn.Recv(ctx)
}

// Offer is what Offer says.
func (u *unread) Offer(ctx context.Context, take Taker) (jsonrpc.Message, error) {
	if len(u.early) > 0 || u.from == nil || take == nil {
		return u.Recv(ctx)
	}
	return u.from.Offer(ctx, take)
}

// TrySender passes on what the Conn has.
func (u *unread) TrySender() func(jsonrpc.Message) bool { return TrySender(u.PullConn) }

// HungUp passes on what the Conn knows.
func (u *unread) HungUp() func() error { return HungUp(u.PullConn) }

// SendsItself passes on what the Conn says.
func (u *unread) SendsItself() bool { return SendsItself(u.PullConn) }

// CloseFor passes on why the Conn is closed, to one that can say it.
func (u *unread) CloseFor(err error) error { return closeFor(u.PullConn, err) }
