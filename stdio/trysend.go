package stdio

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// tryWriter writes lines without waiting. One goroutine at a time may call its functions.
type tryWriter struct {
	limit int // the length of the longest line that may be taken, in bytes; 0: none is, and the functions are nil

	// fits reports whether a line of size bytes will be taken as a whole or not at all. That holds until something is written.
	fits func(size int) bool

	// hasRoom reports whether maxKept bytes will surely be taken at once. That holds until something is written. nil: it is never known.
	hasRoom func() bool

	// write writes what can be taken at once, and returns how many bytes that was: of a line that fits all or none, with the few
	// exceptions that TrySend names. The error says why that was nothing.
	write func(line []byte) (int, error)
}

// newTryWriter returns a tryWriter for w. It takes nothing if a write to w might wait, or be taken in part. isOurs says that nobody else
// writes to w if it is a pipe.
func newTryWriter(w io.Writer, isOurs bool) tryWriter {
	switch w := w.(type) {
	case *os.File:
		return pipeTryWriter(w, isOurs)
	case net.Conn:
		return socketTryWriter(w)
	}
	return tryWriter{}
}

// TrySend implements bridge.Conn: it writes a message of up to 4 KiB, or up to 64 KiB to the pipe of a server, that the peer
// takes at once, and returns false, having done nothing with it, for any other. A pipe takes 4 KiB
// as a whole or not at all, and more if it is empty; a socket takes it when its peer has taken
// all that was sent before. If the peer has taken a part of it all the same, the Conn
// ends with ErrCutOff, and TrySend returns true. A message of a Burst may be kept back until that ends.
func (c *Conn) TrySend(m jsonrpc.Message) bool {
	limit := c.out.try.limit
	if m.Kind() == jsonrpc.Invalid || limit == 0 || m.Size() > limit+maxLeftOut || c.end.endError(context.Background()) != nil {
		return false
	}
	select {
	case c.out.writeTurn <- struct{}{}:
	default:
		return false
	}
	if c.keepBack(&m) {
		<-c.out.writeTurn
		c.announceKept(&m)
		return true
	}
	defer func() { <-c.out.writeTurn }()
	c.writeKept()
	return c.tryWrite(m)
}

// tryWrite writes m if the peer takes it at once, as TrySend says. The caller has the writeTurn, and nothing is kept back.
func (c *Conn) tryWrite(m jsonrpc.Message) bool {
	first, id, rest := m.SplitLineAtID()
	size := len(first) + len(id) + len(rest) + 1
	if c.out.err != nil || size > c.out.try.limit || !c.out.try.fits(size) {
		return false
	}
	c.noteOutgoing(m)
	chunk := getChunk()
	defer putChunk(chunk)
	line := appendLine(chunk[:0], first, id, rest)
	c.out.dest.rearm()
	n, _ := c.out.try.write(line) // of an error Send tells
	if 0 < n && n < len(line) {
		// Nobody is to wait for the rest. It takes a window of a few bytes for an
		// empty connection not to take a line. An empty pipe does not take one of more than 4 KiB if the
		// server makes the pipe smaller at this moment, or the kernel has no memory for it.
		c.fail(ErrCutOff)
		return true
	}
	return n > 0
}

// maxLeftOut is how many bytes a message may be above the limit of a tryWriter: line breaks, which are left out, may be that many.
const maxLeftOut = 4 << 10
