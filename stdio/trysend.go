package stdio

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// tryWriter writes what is taken at once, and returns how much that was: all or
// nothing, unless the peer is up to no good. One goroutine at a time may call it.
type tryWriter func(p []byte) int

// newTryWriter returns one that writes to w; nil: w is none of which that is sure.
func newTryWriter(w io.Writer) tryWriter {
	switch w := w.(type) {
	case *os.File:
		return tryPipe(w)
	case net.Conn:
		return trySocket(w)
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

// SendsItself is what bridge.SendsItself says: Send writes.
func (c *Conn) SendsItself() bool { return true }

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
	first, id, rest := m.LineParts()
	if c.sendErr != nil || len(first)+len(id)+len(rest) >= smallSize {
		return false
	}
	c.note(m)
	chunk := getChunk()
	defer putChunk(chunk)
	line := appendLine(chunk[:0], first, id, rest)
	c.out.ready()
	n := c.try(line)
	if 0 < n && n < len(line) {
		// Nobody is to wait for the rest. It takes a window of a few bytes for an
		// empty connection not to take a line.
		c.fail(ErrCutOff)
		return true
	}
	return n > 0
}
