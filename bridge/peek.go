package bridge

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// First waits for the next message of c and returns it without taking it: the next
// Receive begins with it. The errors are Receive's.
func First(ctx context.Context, c Conn) (jsonrpc.Message, error) {
	var f peekSink
	if err := c.Receive(ctx, &f); err != errSeen {
		return jsonrpc.Message{}, err
	}
	return f.m, nil
}

// peekSink is the Sink of First: it has a look at one message and does not take it.
type peekSink struct {
	m jsonrpc.Message // the message that Send was called with
}

// errSeen is with what a peekSink refuses the message that it has seen.
var errSeen = errors.New("bridge: seen, and not taken")

// TrySend implements Sink: it takes nothing, so that Send is called.
func (f *peekSink) TrySend(jsonrpc.Message) bool { return false }

// Send implements Sink: it notes the message and returns errSeen.
func (f *peekSink) Send(_ context.Context, m jsonrpc.Message) error {
	f.m = m
	return errSeen
}
