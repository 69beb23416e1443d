package ws

import (
	"errors"

	"github.com/coder/websocket"
)

// maxFirstMessage is how long a client's messages may be until one was valid: there
// is no server yet, and nobody knows what the client is.
const maxFirstMessage = 1 << 20

var (
	errBudgetExhausted = errors.New("too much is being received; try again later")
	errTooLong         = errors.New("the message is too long")
)

// startChunkTimer gives the peer the time for one chunk.
func (c *conn) startChunkTimer() {
	if c.chunkTimeout > 0 {
		c.reader.slowTimer.SetAfter(c.chunkTimeout)
	}
}

// refuseSlow ends the conversation: a chunk of a message has not come within chunkTimeout.
// slowTimer calls it.
func (c *conn) refuseSlow() {
	c.endForViolation(websocket.StatusPolicyViolation, "a message that arrives too slowly")
}
