package ws

import (
	"context"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxFrameSize is the most that goes into one frame. A longer message is
// fragmented, so that pings and pongs find a gap.
const maxFrameSize = 1 << 20

// writeLoop is the goroutine that writes what was sent. It coalesces: as long as
// there is more to write, frames gather in the wire.
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

// awaitMore waits until there may be something to write. false: nothing comes any more.
func (c *conn) awaitMore() bool {
	select {
	case <-c.out.Ready():
		return !isDone(c.end.done) || c.hasUnwritten()
	case <-c.end.done: // out is closed before done is
		return c.hasUnwritten()
	}
}

// hasUnwritten reports whether something is still to be written after the end.
func (c *conn) hasUnwritten() bool { return c.end.deliverQueued && c.out.Len() > 0 }

// writeAll puts messages into the wire, and flushes the wire whenever a chunk has gathered.
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

// writeInline writes a small message to a peer that has taken all that came before. false:
// the message was not written. It is not small, something before it waits, somebody else
// writes, or nothing can be written any more.
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

// writeMessage puts a message into the wire. The contexts of the library are
// of no use: when one ends, so does the connection.
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

// handleWriteFailure ends a conn to which nothing can be written. What the peer has
// sent before may still be on its way: there is a moment to read it.
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

// closeSocket ends the writer and the WebSocket: with the close handshake
// where the peer takes part in it, within closeWait.
func (c *conn) closeSocket() {
	c.writing.Lock() // whoever writes now is the last: done is closed
	_ = c.wire.flush()
	c.writing.Unlock()
	t := time.AfterFunc(closeWait, func() { _ = c.wire.closeNow() })
	_ = c.ws.Close(c.end.code, c.end.reason)
	t.Stop()
	_ = c.ws.CloseNow()
}
