package stdio

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// firstLine is how long a client's lines may be until one was a valid message:
// there is no server yet, and nobody knows what the client is.
const firstLine = 1 << 20

// Why a client's connection is ended.
var (
	errTooMuch = errors.New("too much is being received; try again later")
	errTooSlow = errors.New("a message arrives too slowly")
)

// intake bounds what the lines of one client may take: memory, and time. What is
// in one chunk does not count. It belongs to who reads the lines. nil bounds nothing.
type intake struct {
	share *budget.Share
	pace  time.Duration    // for each chunk of a line to arrive in; 0 or negative: no limit
	slow  *lazytimer.Timer // is set while a line arrives
	due   int              // how long the line has to be when slow goes off; 0: slow is not set
}

// bound makes the Conn keep to the bounds of a client's lines. It comes before
// the first Receive.
func (c *Conn) bound(share *budget.Share, pace time.Duration) {
	c.in.lines.intake = &intake{share: share, pace: pace, slow: &lazytimer.Timer{Do: func() { c.endFor(errTooSlow) }}}
	c.in.lines.max = min(firstLine, c.opts.MaxMessageSize)
}

// unbind gives back what the lines hold. Nobody reads them any more.
func (c *Conn) unbind() {
	if in := c.in.lines.intake; in != nil {
		in.slow.Stop()
		in.share.Free()
	}
}

// endFor ends the conversation with a client, which is told why if it takes that
// at once.
func (c *Conn) endFor(err error) {
	c.TrySend(jsonrpc.NewError(jsonrpc.NullID, jsonrpc.CodeInvalidRequest, err.Error(), nil))
	c.fail(err)
}

// tooLong says which limit a line was beyond.
func (c *Conn) tooLong() string {
	if max := c.in.lines.max; max < c.opts.MaxMessageSize {
		return fmt.Sprintf("is longer than %d bytes, which is the limit until there was a valid one", max)
	}
	return fmt.Sprintf("is longer than %d bytes, which is the limit (--max-message-size)", c.opts.MaxMessageSize)
}

func (in *intake) take(n int) bool { return in == nil || in.share.Take(n) }

func (in *intake) release(n int) {
	if in != nil {
		in.share.Release(n)
	}
}

// passed says that nothing is kept of the lines any more that were taken.
func (in *intake) passed() {
	if in != nil && in.share.Held() > 0 {
		in.share.Free()
	}
}

// expect gives the peer the time for one more chunk of a line of which there are so
// many bytes.
func (in *intake) expect(size int) {
	if in == nil || size == 0 || in.pace <= 0 || in.due > 0 && size < in.due {
		return
	}
	in.due = size + chunkSize
	in.slow.After(in.pace)
}

// arrived says that all of a line has, or that nobody reads it now.
func (in *intake) arrived() {
	if in != nil && in.due > 0 {
		in.due = 0
		in.slow.Clear()
	}
}
