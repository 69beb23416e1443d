package stdio

import (
	"errors"
	"os"
	"syscall"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file keeps lines back that belong to a Burst, to write them together.

// maxHeld is how many bytes of lines a Conn keeps back at most, line feeds included: as many as a pipe takes as a whole (pipeBuf), and
// a connection at once (sockstate.MaxInlineBytes).
const maxHeld = 4 << 10

// hold keeps m back, which TrySend was given, if m is one of a Burst that goes on and the peer will surely take it at once. false: it
// does not. The caller has the writeTurn.
func (c *Conn) hold(m jsonrpc.Message) bool {
	if m.Burst() == nil || c.out.try.takesHeld == nil || c.out.err != nil {
		return false
	}
	first, id, rest := m.SplitLineAtID()
	size := len(first) + len(id) + len(rest) + 1
	if len(c.out.held)+size > maxHeld {
		c.writeHeld()
	}
	if size > maxHeld || !m.Burst().Hold((*holder)(c)) || len(c.out.held) == 0 && !c.out.try.takesHeld() {
		return false
	}
	c.noteOutgoing(m)
	if c.out.held == nil {
		c.out.held = getChunk()[:0]
	}
	c.out.held = appendLine(c.out.held, first, id, rest)
	return true
}

// writeHeld writes the lines that are kept back, without waiting: hold has found that the peer takes them. The Conn ends with ErrCutOff if
// it does not take all of them all the same. The caller has the writeTurn.
func (c *Conn) writeHeld() {
	if len(c.out.held) == 0 {
		return
	}
	n, err := c.out.try.write(c.out.held)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) { // the ctx of an earlier Send has ended
		c.out.dest.rearm()
		n, err = c.out.try.write(c.out.held)
	}
	all := n == len(c.out.held)
	putChunk(c.out.held[:chunkSize])
	c.out.held = nil
	switch {
	case all:
	case n == 0 && err != nil && !errors.Is(err, syscall.EAGAIN): // the peer is gone: Receive says how, and the next Send fails as well
	default:
		c.fail(ErrCutOff)
	}
}

// holder is a Conn as a burst.Holder.
type holder Conn

// WriteHeld implements burst.Holder. Whoever has the writeTurn now has taken it after the last line was kept back, and so writes what is
// kept back, or keeps it for another Burst that goes on.
func (h *holder) WriteHeld() {
	c := (*Conn)(h)
	select {
	case c.out.writeTurn <- struct{}{}:
		c.writeHeld()
		<-c.out.writeTurn
	default:
	}
}
