package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file keeps lines back that belong to a Burst, to write them together.

// maxKept is how many bytes of lines a Conn keeps back at most, line feeds included: as many as a pipe takes as a whole (pipeBuf), and
// a connection at once (sockstate.MaxInlineBytes).
const maxKept = 4 << 10

// keepBack keeps m back, which TrySend was given, if m is one of a Burst that goes on and the peer surely has room. It may have to
// write what was kept back before, which may fail (writeKept). The caller has the writeTurn. After true it gives that back, and calls
// announceKept.
func (c *Conn) keepBack(m *jsonrpc.Message) (kept bool) {
	if b := m.Burst(); b == nil || !b.Going() || c.out.try.hasRoom == nil {
		return false
	}
	first, id, rest := m.SplitLineAtID()
	size := len(first) + len(id) + len(rest) + 1
	if len(c.out.kept)+size > maxKept {
		c.writeKept()
	}
	if size > maxKept || c.out.err != nil || len(c.out.kept) == 0 && !c.out.try.hasRoom() {
		return false
	}
	c.noteOutgoing(*m)
	if c.out.kept == nil {
		c.out.kept = getChunk()[:0]
	}
	c.out.kept = appendLine(c.out.kept, first, id, rest)
	return true
}

// announceKept makes sure that m, which keepBack has kept back, is written: at the end of its Burst, or now if that is over.
func (c *Conn) announceKept(m *jsonrpc.Message) {
	if k := (*keeper)(c); !m.Burst().Keep(k) {
		k.WriteKept()
	}
}

// keeper is a Conn as a burst.Keeper.
type keeper Conn

// WriteKept implements burst.Keeper. If somebody else has the writeTurn, that one writes what is kept back: who has the writeTurn has
// taken it after the lines were kept back, and either writes them before anything else, or keeps one more back, and announces that
// after it has given back the writeTurn.
func (k *keeper) WriteKept() {
	c := (*Conn)(k)
	select {
	case c.out.writeTurn <- struct{}{}:
		c.writeKept()
		<-c.out.writeTurn
	default:
	}
}

// goneGrace is how long Receive has to find out how a peer has ended that takes nothing more. A peer that only reads no more does not
// end: it may still answer what it has read, but then the Conn fails, because who waits for an answer to what was kept back would wait
// for ever.
const goneGrace = 10 * time.Second

// writeKept writes the lines that are kept back, without waiting: keepBack has found that the peer has room for them. If it has not taken
// all of them all the same, the Conn fails: those who have sent the lines count on it. The caller has the writeTurn.
func (c *Conn) writeKept() {
	if len(c.out.kept) == 0 {
		return
	}
	n, err := c.out.try.write(c.out.kept)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) { // the ctx of an earlier Send has ended
		c.out.dest.rearm()
		n, err = c.out.try.write(c.out.kept)
	}
	size := len(c.out.kept)
	putChunk(c.out.kept[:chunkSize])
	c.out.kept = nil
	ended := c.end.endError(context.Background())
	switch {
	case n == size:
	case ended != nil:
		c.out.err = ended
	case n > 0:
		c.out.err = ErrCutOff
		c.fail(ErrCutOff)
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		gone := fmt.Errorf("the peer takes nothing more: %w", err)
		c.out.err = gone
		c.out.goneTimer = time.AfterFunc(goneGrace, func() { c.fail(gone) })
	default:
		c.out.err = fmt.Errorf("stdio: messages that the peer had room for could not be written: %w", err)
		c.fail(c.out.err)
	}
}

// closeTurnWait is how long Close waits for the writeTurn. Those who do not wait for the peer give it back sooner; one who does has
// written already what was kept back.
const closeTurnWait = 10 * time.Millisecond

// closeKept is called first when the Conn is being closed: it writes what is kept back. After that, nothing is kept back any more.
func (c *Conn) closeKept() {
	t := time.NewTimer(closeTurnWait)
	defer t.Stop()
	select {
	case c.out.writeTurn <- struct{}{}:
	case <-t.C:
		return
	}
	c.writeKept()
	c.out.err = cmp.Or(c.out.err, io.ErrClosedPipe)
	if c.out.goneTimer != nil {
		c.out.goneTimer.Stop()
	}
	<-c.out.writeTurn
}
