package ws

import (
	"errors"
	"sync/atomic"

	"github.com/coder/websocket"
)

// maxFirst is how long a client's messages may be until one was valid: there
// is no server yet, and nobody knows what the client is.
const maxFirst = 1 << 20

var (
	errTooMuch = errors.New("too much is being received; try again later")
	errTooLong = errors.New("the message is too long")
)

// budget is the memory for what several conns receive. Any number of
// goroutines may use it. nil has no limit.
type budget struct {
	total int64 // bytes; negative: no limit
	taken atomic.Int64
}

// take reports whether there were n bytes left, which are now taken.
func (b *budget) take(n int) bool {
	if b == nil || b.taken.Add(int64(n)) <= b.total || b.total < 0 {
		return true
	}
	b.taken.Add(-int64(n))
	return false
}

// free gives n bytes back.
func (b *budget) free(n int) {
	if b != nil && n != 0 {
		b.taken.Add(-int64(n))
	}
}

// hasten gives the peer the time for one chunk.
func (c *conn) hasten() {
	if c.pace > 0 {
		c.slow.Set(c.pace)
	}
}

// dribbled ends a conversation with a peer that holds memory and does not go on.
func (c *conn) dribbled() {
	c.refuse(websocket.StatusPolicyViolation, "a message that arrives too slowly")
}
