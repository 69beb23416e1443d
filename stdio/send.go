package stdio

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ErrCutOff is the error of a Conn that had to stop in the middle of a message:
// the context of its Send has ended, or the peer has taken only a part of what
// TrySend wrote.
var ErrCutOff = errors.New("stdio: a message was cut off, so the conversation cannot go on")

// cutOffError returns ErrCutOff with the reason why the write was ended.
func cutOffError(why error) error { return fmt.Errorf("%w: %w", ErrCutOff, why) }

// errNoMessage is the error of Send for the zero Message.
var errNoMessage = errors.New("stdio: send of an invalid message")

// outgoing is the part of a Conn that writes to the peer.
type outgoing struct {
	dest destination // where the bytes of the messages go
	try  tryWriter   // writes what the peer takes at once
	// a lock: holds one element while somebody writes; a channel, because waiting for
	// it must end with a ctx
	writeTurn chan struct{}
	err       error  // the error with which writing has failed; nil: it has not. Guarded by writeTurn
	kept      []byte // lines that are kept back until their Burst ends (kept.go); nil: none are. Guarded by writeTurn
	// has the Conn fail some time after the peer has taken nothing more of what was kept back; nil: it has taken all so far. Guarded by writeTurn
	goneTimer *time.Timer
}

// Send implements bridge.Conn. Line breaks between the tokens of m are left
// out (ST1). It waits while the peer does not read: nothing is queued.
func (c *Conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	if err := c.end.endError(ctx); err != nil {
		return err
	}
	select {
	case c.out.writeTurn <- struct{}{}: // mostly at once, and this alone is the cheaper way to ask
	default:
		select {
		case c.out.writeTurn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.end.done:
			return c.end.err
		}
	}
	defer func() { <-c.out.writeTurn }()
	c.writeKept()
	if c.out.err != nil {
		return c.out.err
	}
	c.noteOutgoing(m)
	return c.writeLine(ctx, m)
}

// noteOutgoing is called with a message before the peer can know of it. Of those for a
// client it notes requests, and the version that was negotiated. It may be called
// again for the same message.
func (c *Conn) noteOutgoing(m jsonrpc.Message) {
	if c.opts.Peer == Client {
		c.client.serverRequests.NoteSent(m)
		if c.opts.AcceptBatch == nil {
			c.client.revision.NoteSent(m)
		}
	}
}

// writeLine writes a message and a line feed: in one write if both fit into a chunk.
// If ctx has ended it in the middle, the Conn ends with ErrCutOff. The caller has the
// writeTurn.
func (c *Conn) writeLine(ctx context.Context, m jsonrpc.Message) error {
	first, id, rest := m.SplitLineAtID()
	var n int
	var err error
	if len(first)+len(id)+len(rest) < chunkSize {
		chunk := getChunk()
		n, err = c.out.dest.write(ctx, appendLine(chunk[:0], first, id, rest))
		putChunk(chunk)
	} else {
		n, err = c.writeParts(ctx, first, []byte(id), rest, lineFeed)
	}
	if err == nil {
		return nil
	}
	why := c.end.endError(ctx) // closing a file makes many errors; this is the one that counts
	switch {
	case !errors.Is(err, errInterrupted):
		c.out.err = err
	case n > 0 && why != nil:
		c.fail(cutOffError(why))
		why = c.end.err
	}
	switch {
	case n >= len(first)+len(id)+len(rest): // only the line feed is missing: the peer may have read the message
		return nil
	case why != nil:
		return why
	}
	return err
}

// lineFeed ends a line that is written in parts.
var lineFeed = []byte{'\n'}

// appendLine appends the three parts of a message (SplitLineAtID) and a line feed to
// line.
func appendLine(line, first []byte, id string, rest []byte) []byte {
	return append(append(append(append(line, first...), id...), rest...), '\n')
}

// writeParts writes parts one after the other, in as few writes as that takes without
// copying all: of a long part only the beginning and the end are copied, to go with
// what is ahead and behind. It returns how many bytes were written.
func (c *Conn) writeParts(ctx context.Context, parts ...[]byte) (n int, err error) {
	chunk := getChunk()
	defer putChunk(chunk)
	write := func(p []byte) {
		if err == nil && len(p) > 0 {
			var more int
			more, err = c.out.dest.write(ctx, p)
			n += more
		}
	}
	buf := chunk[:0]
	for _, part := range parts {
		if len(buf)+len(part) < chunkSize {
			buf = append(buf, part...)
			continue
		}
		if len(buf) > 0 {
			fits := chunkSize - len(buf)
			write(append(buf, part[:fits]...))
			buf, part = chunk[:0], part[fits:]
		}
		if len(part) >= chunkSize {
			end := len(part) - smallBufferSize
			write(part[:end])
			part = part[end:]
		}
		buf = append(buf, part...)
	}
	write(buf)
	return n, err
}
