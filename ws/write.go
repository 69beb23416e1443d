package ws

import (
	"context"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxFrameSize is how many bytes of a message go into one frame at most. A longer message is fragmented, so that pings
// and pongs find a gap.
const maxFrameSize = 1 << 20

// writeLoop is the goroutine that writes what is queued in out, and closes the WebSocket in the end. As long as there
// is more to write, frames gather in the wire, so that several go out in one write.
func (c *conn) writeLoop() {
	defer c.closeSocket()
	var batch [][]byte
	for {
		c.writing.Lock()
		batch, _ = c.out.TakeAll(batch[:0])
		idle := len(batch) == 0
		err := error(nil)
		if idle {
			err = c.wire.flush()
		} else {
			err = c.writeAll(batch)
			clear(batch)
		}
		c.writing.Unlock()
		if err == nil && idle && !c.awaitMore() {
			return
		}
		if err != nil {
			c.handleWriteFailure(err)
			return
		}
	}
}

// awaitMore waits until something is queued. It returns false once the conversation has ended and nothing more is to
// be written.
func (c *conn) awaitMore() bool {
	select {
	case <-c.out.Ready():
		return !isDone(c.end.done) || c.hasUnwritten()
	case <-c.end.done: // out is closed before done is
		return c.hasUnwritten()
	}
}

// hasUnwritten reports, after the end, whether messages are queued that are still to be written.
func (c *conn) hasUnwritten() bool { return c.end.deliverQueued && c.out.Len() > 0 }

// writeAll puts messages into the wire, and flushes the wire whenever chunkSize has gathered.
func (c *conn) writeAll(batch [][]byte) error {
	for _, text := range batch {
		if isDone(c.end.done) && !c.end.deliverQueued {
			return c.end.err
		}
		if err := c.writeMessage(text); err != nil {
			return err
		}
		if c.wire.bufferedBytes() >= chunkSize {
			if err := c.wire.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeInline writes a small message itself, if all that was written before has been taken by the peer. false: the
// message was not written, because it is too large, something waits before it, somebody else writes, or nothing can be
// written any more.
func (c *conn) writeInline(m jsonrpc.Message) bool {
	if c.peerHasTaken == nil || m.Size() > sockstate.MaxInlineBytes-maxFrameHeader || !c.writing.TryLock() {
		return false
	}
	defer c.writing.Unlock()
	if isDone(c.end.done) || c.out.Len() > 0 || c.wire.bufferedBytes() > 0 || !c.peerHasTaken() {
		return false
	}
	// If it cannot be written, nor can what is queued: the writer finds out.
	err := c.writeMessage(m.Bytes())
	return c.wire.flushWithin(sockstate.InlineWriteTimeout) == nil && err == nil
}

// writeMessage puts a message into the wire, in one frame or several. The last frame, or the only one, gathers there
// until the caller flushes the wire. It gives the library no ctx that ends: with that the connection would end.
func (c *conn) writeMessage(text []byte) error {
	c.wire.cork(min(len(text), maxFrameSize))
	if len(text) <= maxFrameSize {
		return c.ws.Write(context.Background(), websocket.MessageText, text)
	}
	w, err := c.ws.Writer(context.Background(), websocket.MessageText)
	for err == nil && len(text) > 0 {
		n := min(len(text), maxFrameSize)
		if _, err = w.Write(text[:n]); err == nil {
			err = c.wire.flush()
		}
		text = text[n:]
		c.wire.cork(min(len(text), maxFrameSize))
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// handleWriteFailure ends the conversation because writing has failed with err. What the peer has sent before may
// still be on its way: there is a moment (closeWait) to read it.
func (c *conn) handleWriteFailure(err error) {
	gone := c.connectionLostError(err)
	c.out.Close(gone)
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-c.end.done:
	case <-t.C:
		c.finish(gone, websocket.StatusGoingAway, "", false)
	}
}

// closeSocket is the end of the writer's goroutine: it closes the WebSocket, with the close handshake if the peer
// takes part in it within closeWait.
func (c *conn) closeSocket() {
	c.writing.Lock() // whoever writes now is the last: done is closed
	_ = c.wire.flush()
	c.writing.Unlock()
	t := time.AfterFunc(closeWait, func() { _ = c.wire.closeNow() })
	_ = c.ws.Close(c.end.code, c.end.reason)
	t.Stop()
	_ = c.ws.CloseNow()
}
