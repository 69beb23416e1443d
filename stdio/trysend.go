package stdio

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/outq"
)

// newTryWriter returns a function that writes to w what w takes at once: all of
// it, and then it is true, or nothing. nil: w is none of which that is sure.
func newTryWriter(w io.Writer) func(p []byte) bool {
	switch w := w.(type) {
	case *os.File:
		return tryPipe(w)
	case net.Conn:
		taken := outq.Of(w)
		if taken == nil {
			return nil
		}
		return func(p []byte) bool {
			if len(p) > outq.Small || !taken() {
				return false
			}
			_, err := w.Write(p)
			return err == nil
		}
	}
	return nil
}

// TrySender returns what writes a message that the peer takes at once
// (bridge.TrySender). A pipe takes it as a whole or not at all, and a
// socket that is empty takes it as a whole; of others nothing is known.
func (c *Conn) TrySender() func(m jsonrpc.Message) bool {
	if c.try == nil {
		return nil
	}
	return c.trySend
}

// trySend leaves everything that is not as always to Send.
func (c *Conn) trySend(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Invalid || m.Size() > 2*smallSize || c.stopped(context.Background()) != nil {
		return false
	}
	select {
	case c.sending <- struct{}{}:
	default:
		return false
	}
	defer func() { <-c.sending }()
	text := m.Line()
	if c.sendErr != nil || len(text) >= smallSize {
		return false
	}
	c.note(m)
	chunk := getChunk()
	defer putChunk(chunk)
	return c.try(append(append(chunk[:0], text...), '\n'))
}
