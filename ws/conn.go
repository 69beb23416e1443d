package ws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/clientstate"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/sendqueue"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// closeWait bounds the close handshake, and, while a conn is being closed, how
// long the peer may take nothing of what it is still owed. Tests make it shorter.
var closeWait = 2 * time.Second

// How much may wait for the peer to take it before Send waits too, and for a Sink
// before the WebSocket is not read any more.
const (
	maxQueuedBytes    = 256 << 10
	maxQueuedMessages = 2048
)

var (
	errClosed    = errors.New("ws: the connection is closed") // our own side has closed it
	errNoMessage = errors.New("ws: send of an invalid message")
)

// connConfig says what a conn has at its other end, and what it may do.
type connConfig struct {
	peer           string // for texts: "the client", or the server's address
	peerIsClient   bool   // it is a client, which is told what is wrong with its messages
	maxMessageSize int
	maxDepth       int                           // 0 or negative: no limit
	maxBatch       int                           // 0: no limit
	pingInterval   time.Duration                 // 0 or negative: never
	idleTimeout    time.Duration                 // without a message in either direction; 0 or negative: for ever
	onNoise        func(size int, reason string) // told of input that is no valid message; not nil

	// Against a client that takes our memory.
	budget            *budget.Budget // for what is received; nil: no limit
	party             string         // who the peer counts as in budget
	maxFirstMessage   int            // bytes in its messages until one was valid; 0: maxMessageSize
	chunkTimeout      time.Duration  // for each chunkSize of a message to arrive in; 0 or negative: no limit
	onBudgetExhausted func()         // called when budget has no room for a message; nil only if budget is

	onEnded func() // called once, when nothing can be sent any more; may be nil
}

// conn is the messages on one WebSocket that is open, a bridge.Conn but for Close. Three
// goroutines serve it: one reads, one writes and finally hangs up, one pings; close
// awaits them.
//
// Whatever ends the conversation calls finish; the first call counts. The goroutines then
// end: the writer closes the socket, which ends the reader.
//
// The order of messages: what was queued in out goes before what TrySend writes itself,
// because that is done only while out and the wire are empty, with writing held.
type conn struct {
	connConfig
	ws   *websocket.Conn
	wire *wire

	reader       reader
	in           inbound     // what the peer has sent, for Receive
	tokenExpired atomic.Bool // the client's token has expired: no message of the client is handed on any more
	// delivering is held while a message of the peer is put into in, also while in has no room.
	delivering sync.Mutex
	out        *sendqueue.Queue // what waits to be written

	writing      sync.Mutex      // held while messages are put into the wire
	peerHasTaken func() bool     // whether the peer has taken all that was written; nil: that is never known
	calls        calls           // zero if the peer is a server
	idleTimer    lazytimer.Timer // ends a conversation in which nothing is said

	wg  sync.WaitGroup
	end ending
}

// calls is what a conn to a client knows of the messages that it has carried.
type calls struct {
	revision       clientstate.NegotiatedVersion
	serverRequests clientstate.ServerRequests // the server's requests that the client has not answered
	openRequests   atomic.Int64               // about how many requests of the client have no answer; see maxInlineCalls
}

// ending is how a conn has ended.
type ending struct {
	once          sync.Once
	done          chan struct{}        // closed by conn.finish; what follows is set before
	err           error                // why nothing can be sent any more
	code          websocket.StatusCode // of the close frame
	reason        string               // in the close frame
	deliverQueued bool                 // what is queued for the peer is still to be delivered

	closing context.Context // done when the owner has closed the conn: nothing is received any more either
	close   context.CancelFunc
}

func newConn(socket *websocket.Conn, w *wire, cfg connConfig) *conn {
	c := &conn{connConfig: cfg, ws: socket, wire: w, out: sendqueue.New(maxQueuedMessages, maxQueuedBytes), peerHasTaken: w.peerHasTaken()}
	c.in.MaxMessages, c.in.MaxBytes = maxQueuedMessages, maxQueuedBytes
	c.end.done = make(chan struct{})
	c.end.closing, c.end.close = context.WithCancel(context.Background())
	socket.SetReadLimit(-1) // the library's own says nothing of use to who is beyond it
	c.reader.messageLimit = cfg.maxMessageSize
	if cfg.maxFirstMessage > 0 {
		c.reader.messageLimit = min(cfg.maxFirstMessage, cfg.maxMessageSize)
	}
	c.reader.slowTimer.Do = c.refuseSlow
	c.idleTimer.Do = c.endIdle
	c.resetIdleTimer()
	c.wg.Go(c.readLoop)
	c.wg.Go(c.writeLoop)
	if cfg.pingInterval > 0 {
		c.wg.Go(c.pingLoop)
	}
	return c
}

// Receive implements bridge.Conn. What has arrived before the peer was gone is
// handed on first. As long as sink takes messages at once, the goroutine that reads the
// WebSocket hands them on.
func (c *conn) Receive(ctx context.Context, sink bridge.Sink) error {
	watch, stop := c.watchStalls(ctx)
	defer stop()
	err := c.in.Receive(ctx, &receiveSink{in: &c.in, sink: sink, watch: watch})
	if ctx.Err() != nil && err == ctx.Err() && c.end.closing.Err() == nil && isDone(c.end.done) {
		err = c.end.err // that the peer is gone may have been the end of ctx
	}
	return err
}

// watchStalls returns the StallWatch of a Receive, and the function that ends it.
func (c *conn) watchStalls(ctx context.Context) (watch *bridge.StallWatch, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	open := context.AfterFunc(c.end.closing, cancel)
	watch = bridge.NewStallWatch(ctx, c.hungUp())
	return watch, func() {
		watch.Stop()
		open()
		cancel()
	}
}

// receiveSink is the Sink of a Receive, with what has to be done around it.
type receiveSink struct {
	in    *inbound
	sink  bridge.Sink
	watch *bridge.StallWatch
}

func (r *receiveSink) TrySend(m jsonrpc.Message) bool {
	if !r.sink.TrySend(m) {
		return false
	}
	r.in.noteTaken()
	return true
}

func (r *receiveSink) Send(_ context.Context, m jsonrpc.Message) error {
	err := r.watch.Send(r.sink, m)
	if err == nil {
		r.in.noteTaken()
	}
	return err
}

// hungUp returns the function with which a StallWatch asks whether a client is gone. A client
// that sends nothing more counts as gone. nil: the system cannot tell, or the peer is a
// server: what a server sent before its end is still handed on without haste.
func (c *conn) hungUp() func() error {
	hungUp := c.wire.hungUp()
	if hungUp == nil || !c.peerIsClient {
		return nil
	}
	return func() error {
		if hungUp() != nil || isDone(c.end.done) {
			return net.ErrClosed
		}
		return nil
	}
}

// Send implements bridge.Conn. It returns when m is queued, and waits while the queue is
// full because the peer takes nothing. Where few calls are open, the caller itself writes a
// response, as in TrySend.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() == jsonrpc.Invalid {
		return errNoMessage
	}
	c.noteOutgoing(m)
	if m.Kind() != jsonrpc.Response || ctx.Err() != nil || !c.writeInlineIfFewCalls(m) {
		if err := c.out.Send(ctx, m.Bytes()); err != nil {
			return err
		}
	}
	c.noteSent(m)
	return nil
}

// noteOutgoing takes note of what a client is sent, before the client can know of it. It may be
// called again for the same message.
func (c *conn) noteOutgoing(m jsonrpc.Message) {
	if c.peerIsClient {
		c.calls.revision.NoteSent(m)
		c.calls.serverRequests.NoteSent(m)
	}
}

// noteSent takes note of a message that was sent, or queued.
func (c *conn) noteSent(m jsonrpc.Message) {
	if c.peerIsClient && m.Kind() == jsonrpc.Response {
		c.calls.noteAnswered()
	}
	c.resetIdleTimer()
}

// maxInlineCalls is how many requests of a client may be open for answers to be written
// by whoever brings them. When there are more the next answer comes soon: the writer's
// goroutine writes several at a time.
const maxInlineCalls = 4

// TrySend implements bridge.Conn. On a connection that is empty a small message is
// written by the caller; otherwise it is queued, if there is room.
func (c *conn) TrySend(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Invalid {
		return false
	}
	c.noteOutgoing(m)
	if !c.writeInlineIfFewCalls(m) && !c.out.TrySend(m.Bytes()) {
		return false
	}
	c.noteSent(m)
	return true
}

// writeInlineIfFewCalls is writeInline where few calls are open.
func (c *conn) writeInlineIfFewCalls(m jsonrpc.Message) bool {
	return c.calls.openRequests.Load() <= maxInlineCalls && c.writeInline(m)
}

// close delivers what was sent, ends the conversation with code and reason,
// unless it has ended already, and returns when all goroutines have.
func (c *conn) close(code websocket.StatusCode, reason string) {
	c.end.close()
	c.in.Abort(errClosed)
	c.finish(errClosed, code, reason, true)
	c.wg.Wait()
	c.idleTimer.Stop()
	c.in.freeHeld()
}

// finish ends the conversation; the first call counts. What is queued for the peer
// is still delivered if deliverQueued is true.
func (c *conn) finish(err error, code websocket.StatusCode, reason string, deliverQueued bool) {
	e := &c.end
	e.once.Do(func() {
		e.err, e.code, e.reason, e.deliverQueued = err, code, reason, deliverQueued
		c.out.Close(err)
		c.wire.shortenStall(closeWait)
		c.idleTimer.Clear()
		close(e.done)
		c.in.End(err)
		if c.onEnded != nil {
			c.onEnded()
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

// connectionLostError returns an error that says that the network has failed with err, or
// that the peer has taken nothing for too long. It does not wrap err: io.EOF would be an
// orderly end to others.
func (c *conn) connectionLostError(err error) error {
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
