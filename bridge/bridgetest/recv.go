package bridgetest

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Recv receives one message from c and returns it. If none comes, the error is that of c's Receive.
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

// takeOneSink is a Sink that takes one message and refuses others.
type takeOneSink struct {
	stop context.CancelFunc // ends the Receive once the message was taken
	took bool               // a message was taken
	m    jsonrpc.Message    // the message that was taken
}

// errEnough is the error with which a Sink for one message refuses another one, and a watchedSink refuses a call that should not be.
var errEnough = errors.New("one message is enough")

// TrySend implements bridge.Sink: it takes the first message, as Send does.
func (s *takeOneSink) TrySend(m jsonrpc.Message) bool { return s.Send(context.Background(), m) == nil }

// Send implements bridge.Sink: it takes the first message, and ends the Receive. It refuses all others.
func (s *takeOneSink) Send(_ context.Context, m jsonrpc.Message) error {
	if s.took {
		return errEnough
	}
	s.took, s.m = true, m
	s.stop()
	return nil
}

// SinkFunc is a bridge.Sink whose Send is the function, and whose TrySend takes nothing.
type SinkFunc func(ctx context.Context, m jsonrpc.Message) error

// TrySend implements bridge.Sink: it takes nothing.
func (f SinkFunc) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink: it calls the function.
func (f SinkFunc) Send(ctx context.Context, m jsonrpc.Message) error { return f(ctx, m) }
