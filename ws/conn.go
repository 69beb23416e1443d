package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// closeWait bounds the close handshake, and, while a conn is being closed, how
// long the peer may take nothing of what it is still owed.
const closeWait = 2 * time.Second

var (
	errClosed    = errors.New("ws: the connection is closed")
	errNoMessage = errors.New("ws: send of an invalid message")
)

// endpoint says what a conn has at its other end, and what it may do.
type endpoint struct {
	peer       string // for texts: "the client", or the server's address
	client     bool   // it is a client, which is told what is wrong with its messages
	maxMessage int
	maxDepth   int           // 0 or negative: no limit
	maxBatch   int           // 0: no limit
	batches    func() bool   // whether the peer may send arrays now
	ping       time.Duration // negative: never
	idle       time.Duration // without a message in either direction; 0 or negative: for ever
	noise      func(size int, reason string)

	// Against a client that takes our memory.
	budget   *budget.Budget // for what is received; nil: no limit
	party    string         // who the peer counts as in budget
	maxFirst int            // bytes in its messages until one was valid; 0: maxMessage
	pace     time.Duration  // for each chunkSize of a message to arrive in; 0 or negative: no limit
	crowded  func()         // called when there is none left of budget

	ended func() // called once, when nothing can be sent any more; may be nil
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

	questions bridge.Questions // to a client
	open      atomic.Int64     // about how many requests of a client have no answer; see crowd

	waiter  *bridge.Waiter
	batch   []jsonrpc.Message // taken from in, by poll
	taken   int               // of them
	writing sync.Mutex        // held while messages are put into the wire

	wg     sync.WaitGroup
	once   sync.Once
	done   chan struct{} // closed by end; what follows is set before
	err    error         // why nothing can be sent any more
	code   websocket.StatusCode
	reason string
	kept   bool        // what is queued for the peer is still to be delivered
	closed atomic.Bool // by us: nothing is received any more either

	limit int              // bytes in a message now; the reader's, as the next two
	text  io.LimitedReader // of the message that is being read
	share *budget.Share    // of what is being read; nil: it is little
	slow  lazytimer.Timer  // is set while a message arrives

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
	c.waiter = bridge.NewWaiter(c.poll)
	socket.SetReadLimit(-1) // the library's own says nothing of use to who is beyond it
	c.limit = e.maxMessage
	if e.maxFirst > 0 {
		c.limit = min(e.maxFirst, e.maxMessage)
	}
	c.slow.Do = c.dribbled
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

// Recv implements bridge.PullConn. What has arrived before the peer was gone is
// returned first.
func (c *conn) Recv(ctx context.Context) (jsonrpc.Message, error) { return c.Offer(ctx, nil) }

// Offer is what bridge.Offer says.
func (c *conn) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	m, err := c.waiter.Offer(ctx, take)
	if err != nil && !c.closed.Load() && ctx.Err() != nil && isDone(c.done) {
		err = c.err // that the peer is gone may have been the end of ctx
	}
	return m, err
}

// poll returns what has arrived, or why nothing will any more.
func (c *conn) poll() (m jsonrpc.Message, err error, ok bool) {
	if c.closed.Load() {
		return m, errClosed, true
	}
	over := isDone(c.done)
	if m, ok := c.received(); ok {
		return m, nil, true
	}
	if over {
		err = c.err
	}
	return m, err, over
}

// received returns the next message that has arrived.
func (c *conn) received() (m jsonrpc.Message, ok bool) {
	if c.taken == len(c.batch) {
		c.batch, c.taken = c.in.takeAll(c.batch[:0]), 0
	}
	if c.taken == len(c.batch) {
		return m, false
	}
	m, c.batch[c.taken] = c.batch[c.taken], m
	c.taken++
	return m, true
}

// Send implements bridge.PullConn. It returns when m is queued; the queue holds
// little, and waits while the peer takes nothing.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case c.turn <- struct{}{}: // mostly at once, and this alone is the cheaper way to ask
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return c.err
		}
	}
	defer func() { <-c.turn }()
	for {
		err := c.queue(m)
		if err == errShut {
			return c.sendErr()
		}
		if err == nil {
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

// queue adds a message to out, or returns why it does not.
func (c *conn) queue(m jsonrpc.Message) error {
	c.note(m)
	err := c.out.put(m)
	if err == nil {
		c.sent(m)
	}
	return err
}

// note takes note of what a client is sent, before it can know of it. It may be
// called again for the same message.
func (c *conn) note(m jsonrpc.Message) {
	if c.client {
		c.questions.Sent(m)
	}
}

// sent takes note of what was sent, or queued.
func (c *conn) sent(m jsonrpc.Message) {
	if c.client && m.Kind() == jsonrpc.Response {
		c.settled()
	}
	c.touch()
}

// crowd is how many requests of a client may be open for answers to be written by who
// brings them. When there are more the next answer comes soon: the writer's goroutine
// writes several at a time.
const crowd = 4

// TrySender is what bridge.TrySender says: on a connection that is empty a small
// message is written by whoever sends it.
func (c *conn) TrySender() func(m jsonrpc.Message) bool {
	taken := c.wire.taken()
	if taken == nil {
		return nil
	}
	return func(m jsonrpc.Message) bool {
		switch {
		case m.Kind() == jsonrpc.Invalid:
			return false
		case c.open.Load() > crowd:
			return c.queue(m) == nil
		case m.Size() > sockstate.Small-frameHeader || !c.writing.TryLock():
			return false
		}
		defer c.writing.Unlock()
		if isDone(c.done) || c.out.len() > 0 || c.wire.waiting() > 0 || !taken() {
			return false
		}
		c.note(m)
		c.sent(m)
		// If it cannot be written, nor can what is queued: the writer finds out.
		err := c.writeMessage(m.Bytes())
		return c.wire.flushWithin(sockstate.Patience) == nil && err == nil
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
	c.waiter.Signal()
	c.end(errClosed, code, reason, true)
	c.wg.Wait()
	c.in.drop()
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
		c.waiter.Signal()
		if c.ended != nil {
			c.ended()
		}
	})
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// broken says that the network has failed, or that we have cut it. It wraps
// nothing of it: io.EOF would be an orderly end to others.
func (c *conn) broken(err error) error {
	if c.wire.stalled.Load() {
		return fmt.Errorf("%s is gone: %w", c.peer, errStalled)
	}
	return fmt.Errorf("the connection to %s was lost: %v", c.peer, rootCause(err))
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
