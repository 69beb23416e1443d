package ws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// closeWait bounds the close handshake, and, while a conn is being closed,
	// how long the peer may take nothing of what it is still owed.
	closeWait = 3 * time.Second

	// maxFrame is the most that goes into one frame. A longer message is
	// fragmented, so that pings and pongs find a gap.
	maxFrame = 1 << 20
)

var (
	errClosed    = errors.New("ws: the connection is closed")
	errNoMessage = errors.New("ws: send of an invalid message")
)

// endpoint says what a conn has at its other end, and what it may do.
type endpoint struct {
	peer       string // for texts: "the client", or the server's address
	client     bool   // it is a client, which is told what is wrong with its messages
	maxMessage int
	maxBatch   int           // 0: no limit
	batches    func() bool   // whether the peer may send arrays now
	ping       time.Duration // negative: never
	idle       time.Duration // without a message in either direction; 0 or negative: for ever
	noise      func(size int, reason string)
	ended      func() // called once, when nothing can be sent any more; may be nil
}

// conn is the messages on one WebSocket that is open. Three goroutines serve
// it: one reads, one writes and finally hangs up, one pings; close awaits them.
//
// Whatever ends the conversation calls end, once. The goroutines then run out:
// the writer hangs up, which the others notice.
type conn struct {
	endpoint
	ws   *websocket.Conn
	wire *wire

	in, out *queue
	turn    chan struct{} // holds one element while somebody waits for room in out
	failed  atomic.Pointer[error]

	recv  sync.Mutex // held during Recv
	batch []jsonrpc.Message

	wg     sync.WaitGroup
	once   sync.Once
	done   chan struct{} // closed by end; what follows is set before
	err    error         // why nothing can be sent any more
	code   websocket.StatusCode
	reason string
	kept   bool        // what is queued for the peer is still to be delivered
	closed atomic.Bool // by us: nothing is received any more either

	active atomic.Int64 // when the last message went, as wire.now
	expiry *time.Timer  // looks at active
}

func newConn(socket *websocket.Conn, w *wire, e endpoint) *conn {
	c := &conn{
		endpoint: e, ws: socket, wire: w,
		in: newQueue(), out: newQueue(),
		turn: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	socket.SetReadLimit(int64(e.maxMessage))
	c.expiry = time.AfterFunc(time.Hour, c.expire)
	c.expiry.Stop()
	if c.idle > 0 {
		c.expiry.Reset(c.idle)
	}
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	if e.ping > 0 {
		c.wg.Go(c.watch)
	}
	return c
}

// Recv implements bridge.Conn. What has arrived before the peer was gone is
// returned first.
func (c *conn) Recv(ctx context.Context) (jsonrpc.Message, error) {
	c.recv.Lock()
	defer c.recv.Unlock()
	for {
		if err := c.mayRecv(ctx); err != nil {
			return jsonrpc.Message{}, err
		}
		if len(c.batch) == 0 {
			c.batch = c.in.takeAll(c.batch[:0])
		}
		if len(c.batch) > 0 {
			m := c.batch[0]
			c.batch[0] = jsonrpc.Message{}
			c.batch = c.batch[1:]
			return m, nil
		}
		select {
		case <-c.in.filled:
		case <-ctx.Done():
		case <-c.done:
			if c.batch = c.in.takeAll(c.batch[:0]); len(c.batch) == 0 {
				return jsonrpc.Message{}, c.err
			}
		}
	}
}

// mayRecv returns why Recv must end now. That the peer is gone comes before
// the end of ctx, which it may have caused.
func (c *conn) mayRecv(ctx context.Context) error {
	if c.closed.Load() {
		return errClosed
	}
	err := ctx.Err()
	if err != nil && isDone(c.done) {
		return c.err
	}
	return err
}

// Send implements bridge.Conn. It returns when m is queued; the queue holds
// little, and waits while the peer takes nothing.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return c.err
	}
	for {
		err := c.out.put(m)
		if err == errShut {
			return c.sendErr()
		}
		if err == nil {
			c.touch()
			return nil
		}
		select {
		case <-c.out.room:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return c.err
		}
	}
}

// sendErr returns why out is shut.
func (c *conn) sendErr() error {
	if failed := c.failed.Load(); failed != nil {
		return *failed
	}
	<-c.done
	return c.err
}

// close delivers what was sent, ends the conversation with code and reason,
// unless it has ended already, and returns when all goroutines have.
func (c *conn) close(code websocket.StatusCode, reason string) {
	c.closed.Store(true)
	c.end(errClosed, code, reason, true)
	c.wg.Wait()
}

// end ends the conversation; the first one counts. What is queued for the peer
// is delivered only if keep says so.
func (c *conn) end(err error, code websocket.StatusCode, reason string, keep bool) {
	c.once.Do(func() {
		c.err, c.code, c.reason, c.kept = err, code, reason, keep
		c.out.close()
		c.wire.hurry(closeWait)
		c.expiry.Stop()
		close(c.done)
		if c.ended != nil {
			c.ended()
		}
	})
}

// write is the goroutine that writes what was sent. It coalesces: as long as
// there is more to write, frames gather in the wire.
func (c *conn) write() {
	defer c.hangUp()
	var batch []jsonrpc.Message
	for {
		batch = c.out.takeAll(batch[:0])
		err := error(nil)
		if len(batch) == 0 {
			if err = c.wire.flush(); err == nil && !c.more() {
				return
			}
		} else {
			err = c.writeAll(batch)
			clear(batch)
		}
		if err != nil {
			c.cannotWrite(err)
			return
		}
	}
}

// more waits until there is something to write. false: nothing comes any more.
func (c *conn) more() bool {
	select {
	case <-c.out.filled:
		return true
	case <-c.done: // out is shut before done is closed
		return c.kept && c.out.len() > 0
	}
}

func (c *conn) writeAll(batch []jsonrpc.Message) error {
	for _, m := range batch {
		if isDone(c.done) && !c.kept {
			return c.err
		}
		if err := c.writeMessage(m.Bytes()); err != nil {
			return err
		}
		if c.wire.waiting() >= chunkSize {
			if err := c.wire.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeMessage puts a message into the wire. The contexts of the library are
// of no use: when one ends, so does the connection.
func (c *conn) writeMessage(text []byte) error {
	c.wire.cork(min(len(text), maxFrame))
	if len(text) <= maxFrame {
		return c.ws.Write(context.Background(), websocket.MessageText, text)
	}
	w, err := c.ws.Writer(context.Background(), websocket.MessageText)
	for err == nil && len(text) > 0 {
		n := min(len(text), maxFrame)
		if _, err = w.Write(text[:n]); err == nil {
			err = c.wire.flush()
		}
		text = text[n:]
		c.wire.cork(min(len(text), maxFrame))
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// cannotWrite ends a conn to which nothing can be written. What the peer has
// sent before may still be on its way: there is a moment to read it.
func (c *conn) cannotWrite(err error) {
	if c.wire.stalled.Load() {
		c.end(fmt.Errorf("%s is gone: %w", c.peer, errStalled), websocket.StatusGoingAway, "", false)
		return
	}
	gone := c.broken(err)
	c.failed.Store(&gone)
	c.out.close()
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
		c.end(gone, websocket.StatusGoingAway, "", false)
	}
}

// hangUp is the end of the writer, and of the WebSocket: the close handshake
// where the peer takes part in it, within closeWait.
func (c *conn) hangUp() {
	_ = c.wire.flush() // takes the cork off
	t := time.AfterFunc(closeWait, func() { _ = c.wire.cut() })
	_ = c.ws.Close(c.code, c.reason)
	t.Stop()
	_ = c.ws.CloseNow()
}

// watch is the goroutine that pings (WS5). It gives the peer up when two pings
// have brought nothing at all, not even a part of a message, after 2.2
// times the interval. Where nobody takes what the peer sends, it is not silent.
func (c *conn) watch() {
	for c.pause(c.ping) {
		if c.answers(c.ping) || c.answers(c.ping/5) {
			continue
		}
		if err := c.wire.failed(); err != nil { // which nobody need have noticed
			c.cannotWrite(err)
			return
		}
		if c.wire.silence() < 2*c.ping {
			continue
		}
		c.end(fmt.Errorf("%s is gone: no sign of life for %v", c.peer, c.wire.silence().Round(time.Second)),
			websocket.StatusGoingAway, "no sign of life", false)
		return
	}
}

// answers pings, and reports whether a pong came in time.
func (c *conn) answers(within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return c.ws.Ping(ctx) == nil
}

// pause waits for d; false: the conversation is over.
func (c *conn) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return !isDone(c.done)
	case <-c.done:
		return false
	}
}

// touch says that a message goes.
func (c *conn) touch() {
	if c.idle > 0 {
		c.active.Store(int64(c.wire.now()))
	}
}

// expire ends a conversation in which nothing was said for too long.
func (c *conn) expire() {
	if left := c.idle - c.wire.now() + time.Duration(c.active.Load()); left > 0 {
		c.expiry.Reset(left)
		return
	}
	c.end(fmt.Errorf("no message went for %v", c.idle), websocket.StatusGoingAway, "idle for too long", true)
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// broken says that the network has failed.
func (c *conn) broken(err error) error {
	return fmt.Errorf("the connection to %s was lost: %w", c.peer, rootCause(err))
}

// rootCause returns the innermost error: what the library adds is its own
// inner life.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
