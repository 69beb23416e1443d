package ws

import (
	"errors"

	"github.com/coder/websocket"
)

// maxFirstMessage is how long a client's messages may be, in bytes, until one was valid: there is no server yet, and
// nobody knows what the client is.
const maxFirstMessage = 1 << 20

var (
	errBudgetExhausted = errors.New("too much is being received; try again later") // ends a conn for whose peer's message the budget has no room
	errTooLong         = errors.New("the message is too long")                     // readAll's error for a message that is longer than it may be
)

// startChunkTimer gives the peer chunkTimeout from now to send the next chunk of a message, or its end.
func (c *conn) startChunkTimer() {
	if c.chunkTimeout > 0 {
		c.reader.slowTimer.SetAfter(c.chunkTimeout)
	}
}

// refuseSlow ends the conversation because a chunk of a message has not come within chunkTimeout. slowTimer calls it.
func (c *conn) refuseSlow() {
	c.endForViolation(websocket.StatusPolicyViolation, "a message that arrives too slowly")
}
