package bridgetest

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Recv receives one message from c.
func Recv(ctx context.Context, c bridge.Conn) (jsonrpc.Message, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &takeOneSink{stop: stop}
	err := c.Receive(ctx, s)
	if s.took {
		return s.m, nil
	}
	return jsonrpc.Message{}, err
}

// takeOneSink is a Sink that takes one message.
type takeOneSink struct {
	stop context.CancelFunc
	took bool
	m    jsonrpc.Message
}

var errEnough = errors.New("one message is enough")

func (s *takeOneSink) TrySend(m jsonrpc.Message) bool { return s.Send(context.Background(), m) == nil }

func (s *takeOneSink) Send(_ context.Context, m jsonrpc.Message) error {
	if s.took {
		return errEnough
	}
	s.took, s.m = true, m
	s.stop()
	return nil
}

// SinkFunc is a bridge.Sink whose TrySend takes nothing.
type SinkFunc func(ctx context.Context, m jsonrpc.Message) error

// TrySend implements bridge.Sink.
func (f SinkFunc) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink.
func (f SinkFunc) Send(ctx context.Context, m jsonrpc.Message) error { return f(ctx, m) }
