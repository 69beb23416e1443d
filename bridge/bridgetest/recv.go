package bridgetest

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Recv receives one message from c.
func Recv(ctx context.Context, c bridge.Conn) (m jsonrpc.Message, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = c.Receive(ctx, SinkFunc(func(_ context.Context, got jsonrpc.Message) error {
		m = got
		stop()
		return nil
	}))
	if m.Kind() != jsonrpc.Invalid {
		err = nil
	}
	return m, err
}

// SinkFunc is a bridge.Sink whose TrySend takes nothing.
type SinkFunc func(ctx context.Context, m jsonrpc.Message) error

// TrySend implements bridge.Sink.
func (f SinkFunc) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink.
func (f SinkFunc) Send(ctx context.Context, m jsonrpc.Message) error { return f(ctx, m) }
