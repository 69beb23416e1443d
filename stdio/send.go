package stdio

import (
	"context"
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ErrCutOff is the error of a Conn that had to stop in the middle of a message
// because the context of its Send has ended.
var ErrCutOff = errors.New("stdio: a message was cut off, so the conversation cannot go on")

func cutOff(why error) error { return fmt.Errorf("%w: %w", ErrCutOff, why) }

var errNoMessage = errors.New("stdio: send of an invalid message")

// Send implements bridge.Conn. Line breaks between the tokens of m are left
// out (ST1). It waits while the peer does not read: nothing is queued.
func (c *Conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	if err := c.stopped(ctx); err != nil {
		return err
	}
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.err
	}
	defer func() { <-c.sending }()
	if c.sendErr != nil {
		return c.sendErr
	}
	c.note(m)
	return c.writeLine(ctx, m.Line())
}

// note takes note of what a client is sent, before it can know of it. It may be
// called again for the same message.
func (c *Conn) note(m jsonrpc.Message) {
	if c.opts.Peer == Client {
		c.questions.Sent(m)
		if c.opts.AcceptBatch == nil {
			c.revision.Note(m)
		}
	}
}

// writeLine writes text and a line feed in one write. A text that does not fit
// into a chunk needs several writes in any case; of it only the end is copied.
func (c *Conn) writeLine(ctx context.Context, text []byte) error {
	chunk := getChunk()
	defer putChunk(chunk)
	var head []byte
	if len(text) >= chunkSize {
		cut := len(text) - smallSize
		head, text = text[:cut], text[cut:]
	}
	tail := append(append(chunk[:0], text...), '\n')

	n, err := 0, error(nil)
	if len(head) > 0 {
		n, err = c.out.write(ctx, head)
	}
	if err == nil {
		var more int
		more, err = c.out.write(ctx, tail)
		n += more
	}
	if err == nil {
		return nil
	}
	why := c.stopped(ctx) // closing a file makes many errors; this is the one that counts
	switch {
	case !errors.Is(err, errInterrupted):
		c.sendErr = err
	case n > 0 && why != nil:
		c.fail(cutOff(why))
		why = c.err
	}
	if why != nil {
		return why
	}
	return err
}
