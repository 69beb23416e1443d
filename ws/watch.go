package ws

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// pingLoop is the goroutine that pings the peer every pingInterval (WS5). It ends the conversation when two pings have
// brought nothing at all, not even a part of a message: that is after 2.2 times the interval. While nobody reads what
// the peer sends, it does not count as silent.
func (c *conn) pingLoop() {
	for c.pause(c.pingInterval) {
		if c.pingAnswered(c.pingInterval) || c.pingAnswered(c.pingInterval/5) {
			continue
		}
		if err := c.wire.writeErr(); err != nil { // which nobody need have noticed
			c.handleWriteFailure(err)
			return
		}
		if c.wire.silence() < 2*c.pingInterval {
			continue
		}
		c.finish(fmt.Errorf("%s is gone: no sign of life for %v", c.peer, c.wire.silence().Round(time.Second)),
			websocket.StatusGoingAway, "no sign of life", false)
		return
	}
}

// pingAnswered pings, and reports whether a pong came within that time.
func (c *conn) pingAnswered(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.ws.Ping(ctx) == nil
}

// pause waits for d. It returns false, at once, when the conversation is over.
func (c *conn) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !isDone(c.end.done)
	case <-c.end.done:
		return false
	}
}

// resetIdleTimer begins idleTimeout anew, because a message has come or was sent.
func (c *conn) resetIdleTimer() {
	if c.idleTimeout > 0 {
		c.idleTimer.SetAfter(c.idleTimeout)
	}
}

// endIdle ends the conversation because no message has gone either way for idleTimeout. idleTimer calls it.
func (c *conn) endIdle() {
	c.finish(fmt.Errorf("no message went for %v", c.idleTimeout), websocket.StatusGoingAway, "idle for too long", true)
}
