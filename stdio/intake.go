package stdio

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxFirstLine is how long a client's lines may be, in bytes, until one was a valid
// message: there is no server yet, and nobody knows what the client is.
const maxFirstLine = 1 << 20

// Why a client's connection is ended.
var (
	// ends the connection of a client for whose line the budget has no room
	errBudgetExhausted = errors.New("too much is being received; try again later")
	// ends the connection of a client that has not sent a chunk of a line within
	// chunkTimeout
	errTooSlow = errors.New("a message arrives too slowly")
)

// intakeGuard bounds what the lines of one client may take while they are received:
// memory, and time. The memory of a line that fits into one chunk does not count. It is
// for the one goroutine that reads the lines. A nil intakeGuard bounds nothing.
type intakeGuard struct {
	share        *budget.Share    // the part of the budget that the lines hold
	chunkTimeout time.Duration    // how long each chunk of a line may take to arrive; 0 or negative: for ever
	slowTimer    *lazytimer.Timer // is set while a line arrives; ends the Conn with errTooSlow
	dueSize      int              // how long the line must be, in bytes, before slowTimer goes off; 0: the timer is not set
}

// limitIntake has the Conn bound what the client's lines take: their memory is taken
// from share, each chunk must arrive within chunkTimeout, and lines have maxFirstLine
// bytes at most until one was valid. It is called before the first Receive.
func (c *Conn) limitIntake(share *budget.Share, chunkTimeout time.Duration) {
	c.in.lines.intake = &intakeGuard{share: share, chunkTimeout: chunkTimeout, slowTimer: &lazytimer.Timer{Do: func() { c.endWithReason(errTooSlow) }}}
	c.in.lines.max = min(maxFirstLine, c.opts.MaxMessageSize)
}

// releaseIntake gives back what the lines hold of the budget. It is called when nobody
// reads them any more.
func (c *Conn) releaseIntake() {
	if in := c.in.lines.intake; in != nil {
		in.slowTimer.Stop()
		in.share.ReleaseAll()
	}
}

// endWithReason ends the conversation with a client for the reason err. The client is told that in an error response,
// if it takes it at once.
func (c *Conn) endWithReason(err error) {
	c.TrySend(jsonrpc.NewError(jsonrpc.NullID, jsonrpc.CodeInvalidRequest, err.Error(), nil))
	c.fail(err)
}

// tooLongText returns the end of a sentence about a message: that it is longer than
// the limit, and which limit that is.
func (c *Conn) tooLongText() string {
	if max := c.in.lines.max; max < c.opts.MaxMessageSize {
		return fmt.Sprintf("is longer than %d bytes, which is the limit until there was a valid one", max)
	}
	return fmt.Sprintf("is longer than %d bytes, which is the limit (--max-message-size)", c.opts.MaxMessageSize)
}

// hold takes n bytes more of the budget; false: it has no room for them.
func (in *intakeGuard) hold(n int) bool { return in == nil || in.share.Take(n) }

// release gives n bytes back to the budget.
func (in *intakeGuard) release(n int) {
	if in != nil {
		in.share.Release(n)
	}
}

// releaseAll gives back all that the lines hold of the budget. It is called when none
// of the lines that take has returned is in use any more.
func (in *intakeGuard) releaseAll() {
	if in != nil && in.share.Held() > 0 {
		in.share.ReleaseAll()
	}
}

// expectChunk is called before a read, when size bytes of a line have come: the peer
// has chunkTimeout for the next chunkSize bytes, or for the end of the line, and begins
// anew each time that so many have come. Nothing happens before a line's first byte.
func (in *intakeGuard) expectChunk(size int) {
	if in == nil || size == 0 || in.chunkTimeout <= 0 || in.dueSize > 0 && size < in.dueSize {
		return
	}
	in.dueSize = size + chunkSize
	in.slowTimer.SetAfter(in.chunkTimeout)
}

// clearSlowTimer stops slowTimer: all of the line has arrived, or nobody reads it now.
func (in *intakeGuard) clearSlowTimer() {
	if in != nil && in.dueSize > 0 {
		in.dueSize = 0
		in.slowTimer.Clear()
	}
}
