package bridgetest

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Puller is a Conn from which a test takes one message after the other.
type Puller struct{ conn bridge.Conn }

// Pull returns c for a test that wants to say when it takes a message. Nobody else may
// receive from c meanwhile.
func Pull(c bridge.Conn) *Puller { return &Puller{c} }

// Pipe is bridge.Pipe, of which both ends are pulled.
func Pipe() (a, b *Puller) {
	x, y := bridge.Pipe()
	return Pull(x), Pull(y)
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
