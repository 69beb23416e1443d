package stdio

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// tryWriter writes what can be taken at once, and returns how many bytes that was: all
// of p or none, unless the peer's receive window is so small that a connection takes a
// part. One goroutine at a time may call it.
type tryWriter func(p []byte) int

// newTryWriter returns a tryWriter for w; nil: a write to w might wait, or be taken in part.
func newTryWriter(w io.Writer) tryWriter {
	switch w := w.(type) {
	case *os.File:
		return pipeTryWriter(w)
	case net.Conn:
		return socketTryWriter(w)
	}
	return nil
}

// TrySend implements bridge.Conn: it writes a message of up to 4 KiB that the peer
// takes at once, and returns false, having done nothing, for any other. A pipe takes
// that much as a whole or not at all, and a socket takes it when its peer has taken
// all that was sent before. If the peer has taken a part of it all the same, the Conn
// ends with ErrCutOff, and TrySend returns true.
func (c *Conn) TrySend(m jsonrpc.Message) bool {
	if c.out.tryWrite == nil || m.Kind() == jsonrpc.Invalid || m.Size() > 2*smallBufferSize || c.end.endError(context.Background()) != nil {
		return false
	}
	select {
	case c.out.writeTurn <- struct{}{}:
	default:
		return false
	}
	defer func() { <-c.out.writeTurn }()
	first, id, rest := m.SplitLineAtID()
	if c.out.err != nil || len(first)+len(id)+len(rest) >= smallBufferSize {
		return false
	}
	c.noteOutgoing(m)
	chunk := getChunk()
	defer putChunk(chunk)
	line := appendLine(chunk[:0], first, id, rest)
	c.out.dest.rearm()
	n := c.out.tryWrite(line)
	if 0 < n && n < len(line) {
		// Nobody is to wait for the rest. It takes a window of a few bytes for an
		// empty connection not to take a line.
		c.fail(ErrCutOff)
		return true
	}
	return n > 0
}
