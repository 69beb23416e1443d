package ws

import (
	"errors"

	"github.com/coder/websocket"
)

// maxFirst is how long a client's messages may be until one was valid: there
// is no server yet, and nobody knows what the client is.
const maxFirst = 1 << 20

var (
	errTooMuch = errors.New("too much is being received; try again later")
	errTooLong = errors.New("the message is too long")
)

// hasten gives the peer the time for one chunk.
func (c *conn) hasten() {
	if c.pace > 0 {
		c.slow.After(c.pace)
	}
}

// dribbled ends a conversation with a peer that holds memory and does not go on.
func (c *conn) dribbled() {
	c.refuse(websocket.StatusPolicyViolation, "a message that arrives too slowly")
}
