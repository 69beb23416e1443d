package bridgetest

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A PullConn is a Conn from which a test takes one message after the other.
type PullConn interface {
	Recv(ctx context.Context) (jsonrpc.Message, error)
	Send(ctx context.Context, m jsonrpc.Message) error
	Close() error
}

// A Puller is a Conn as a PullConn.
type Puller struct{ conn bridge.Conn }

// Pull returns c for a test that wants to say when it takes a message. Nobody else may
// receive from c meanwhile.
func Pull(c bridge.Conn) *Puller { return &Puller{c} }

// Pipe is bridge.Pipe, of which both ends are pulled.
func Pipe() (a, b *Puller) {
	x, y := bridge.Pipe()
	return Pull(x), Pull(y)
}

// PullDialed is Pull of what a Dialer has returned.
func PullDialed(c bridge.Conn, err error) (PullConn, error) {
	if err != nil {
		return nil, err
	}
	return Pull(c), nil
}

// PullHandler is a Handler that pulls its client.
func PullHandler(f func(ctx context.Context, client PullConn) error) bridge.HandlerFunc {
	return func(ctx context.Context, client bridge.Conn) error { return f(ctx, Pull(client)) }
}

// Push returns a Conn that is c: what Pull has made one of, or one that calls Recv.
func Push(c PullConn) bridge.Conn {
	if p, ok := c.(*Puller); ok {
		return p.conn
	}
	p := &pushed{PullConn: c}
	p.open, p.closing = context.WithCancel(context.Background())
	return p
}

// PushDialed is Push of what a Dialer is to return.
func PushDialed(c PullConn, err error) (bridge.Conn, error) {
	if err != nil {
		return nil, err
	}
	return Push(c), nil
}

// Pushed is a MakeFunc made of one that pulls.
func Pushed(f func(t *testing.T) (a, b PullConn, stop func())) MakeFunc {
	return func(t *testing.T) (bridge.Conn, bridge.Conn, func()) {
		a, b, stop := f(t)
		return Push(a), Push(b), stop
	}
}

// pushed is a Conn made of a PullConn. A method HungUp of that is for its StallWatch.
type pushed struct {
	PullConn
	refused jsonrpc.Message
	open    context.Context // until Close
	closing context.CancelFunc
}

func (p *pushed) TrySend(jsonrpc.Message) bool { return false }

func (p *pushed) Close(reason error) error {
	p.closing()
	if c, ok := p.PullConn.(interface{ CloseFor(error) error }); ok {
		return c.CloseFor(reason)
	}
	return p.PullConn.Close()
}

func (p *pushed) Receive(ctx context.Context, sink bridge.Sink) error {
	var hungUp func() error
	if h, ok := p.PullConn.(interface{ HungUp() error }); ok {
		hungUp = h.HungUp
	}
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.open, cancel)()
	watch := bridge.NewStallWatch(sending, hungUp)
	defer watch.Stop()
	for {
		m := p.refused
		p.refused = jsonrpc.Message{}
		if m.Kind() == jsonrpc.Invalid {
			var err error
			if m, err = p.Recv(ctx); err != nil {
				return err
			}
		}
		if err := watch.Send(sink, m); err != nil {
			p.refused = m
			return err
		}
	}
}

// Conn returns what is pulled.
func (p *Puller) Conn() bridge.Conn { return p.conn }

// Recv takes the next message.
func (p *Puller) Recv(ctx context.Context) (jsonrpc.Message, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &takeOne{stop: stop}
	err := p.conn.Receive(ctx, s)
	if s.took {
		return s.m, nil
	}
	return jsonrpc.Message{}, err
}

// Send is that of the Conn.
func (p *Puller) Send(ctx context.Context, m jsonrpc.Message) error { return p.conn.Send(ctx, m) }

// TrySend is that of the Conn.
func (p *Puller) TrySend(m jsonrpc.Message) bool { return p.conn.TrySend(m) }

// Close closes the Conn in an orderly way.
func (p *Puller) Close() error { return p.conn.Close(nil) }

// CloseFor closes the Conn for a reason.
func (p *Puller) CloseFor(reason error) error { return p.conn.Close(reason) }

// takeOne is a Sink that takes one message.
type takeOne struct {
	stop context.CancelFunc
	took bool
	m    jsonrpc.Message
}

var errEnough = errors.New("one message is enough")

func (s *takeOne) TrySend(m jsonrpc.Message) bool { return s.Send(context.Background(), m) == nil }

func (s *takeOne) Send(_ context.Context, m jsonrpc.Message) error {
	if s.took {
		return errEnough
	}
	s.took, s.m = true, m
	s.stop()
	return nil
}
