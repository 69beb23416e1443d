package bridge

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// First waits for the next message of c and returns it without taking it: the next
// Receive begins with it. The errors are Receive's.
func First(ctx context.Context, c Conn) (jsonrpc.Message, error) {
	var f first
	if err := c.Receive(ctx, &f); err != errSeen {
		return jsonrpc.Message{}, err
	}
	return f.m, nil
}

// first is a Sink that has a look at one message and does not take it.
type first struct{ m jsonrpc.Message }

var errSeen = errors.New("bridge: seen, and not taken")

func (f *first) TrySend(jsonrpc.Message) bool { return false }

func (f *first) Send(_ context.Context, m jsonrpc.Message) error {
	f.m = m
	return errSeen
}
