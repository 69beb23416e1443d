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

// closeWait bounds the close handshake, and, while a conn is being closed, how long the peer may take nothing of what
// it is still owed. It also bounds how long is still read after a write has failed, and how long requests are refused
// that wait when a token has expired. It is a variable for tests.
var closeWait = 2 * time.Second

// How much may wait for the peer to take it before Send waits too, and for a Sink
// before the WebSocket is not read any more.
const (
	// how many bytes may wait for the peer before Send waits, and for a Sink before the WebSocket is not read any more
	maxQueuedBytes = 256 << 10
	// how many messages may wait for the peer before Send waits, and for a Sink before the WebSocket is not read any
	// more
	maxQueuedMessages = 2048
)

var (
	errClosed    = errors.New("ws: the connection is closed")   // what ends a conn that our own side has closed
	errNoMessage = errors.New("ws: send of an invalid message") // Send's error for the zero Message
)

// connConfig says what kind of peer a conn has, and what the peer may do.
type connConfig struct {
	peer           string        // what texts call the peer: "the client", or the server's address
	peerIsClient   bool          // the peer is a client, which is told what is wrong with its messages; false: a server
	maxMessageSize int           // bytes that a message of the peer may have
	maxDepth       int           // levels of objects and arrays that a message may have; 0 or negative: any number
	maxBatch       int           // messages that a batch of the peer may have; 0: any number
	pingInterval   time.Duration // how often the peer is pinged; 0 or negative: never
	idleTimeout    time.Duration // the conversation ends when no message has gone either way for so long; 0 or negative: never
	// told of input that is no valid message: the size of its text in bytes, and what is wrong; not nil
	onNoise func(size int, reason string)

	budget            *budget.Budget // the memory for messages that are received; nil: no limit
	party             string         // the party that the peer is of, in budget
	maxFirstMessage   int            // bytes that a message of the peer may have until one was valid; 0: maxMessageSize
	chunkTimeout      time.Duration  // how long each chunkSize of a message may take to arrive; 0 or negative: for ever
	onBudgetExhausted func()         // called when the conn ends because budget has no room for a message; nil only if budget is

	onEnded func() // called once, when the conversation has ended and nothing can be sent any more; nil: nobody is told
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
	ws   *websocket.Conn // the library's end of the WebSocket
	wire *wire           // the byte stream under ws

	reader       reader           // the state of readLoop
	in           inbound          // what the peer has sent, and Receive has not handed on
	tokenExpired atomic.Bool      // the client's token has expired: no message of the client is handed on any more
	delivering   sync.Mutex       // held while a message of the peer is put into in, also while that waits for room
	out          *sendqueue.Queue // messages that wait to be written

	writing      sync.Mutex      // held by whoever puts messages into the wire
	peerHasTaken func() bool     // asks the system whether the peer has taken all that was written; nil: that is never known
	calls        calls           // what is known of the client's calls; zero if the peer is a server
	idleTimer    lazytimer.Timer // ends the conversation after idleTimeout without a message

	wg  sync.WaitGroup // waits for the goroutines that read, write and ping
	end ending         // whether and how the conversation has ended
}

// calls is what a conn to a client has learnt from the messages that passed.
type calls struct {
	revision       clientstate.NegotiatedVersion // the protocol version that was negotiated: whether the client may send batches
	serverRequests clientstate.ServerRequests    // the server's requests that the client has not answered
	openRequests   atomic.Int64                  // about how many requests of the client have no answer yet; see maxInlineCalls
}

// ending is whether and how a conn has ended.
type ending struct {
	once          sync.Once            // makes only the first call of conn.finish count
	done          chan struct{}        // closed by conn.finish, which sets err, code, reason and deliverQueued before
	err           error                // the error that Send, and in the end Receive, returns: why the conversation has ended; never nil once done is closed
	code          websocket.StatusCode // the status in our close frame
	reason        string               // the text in our close frame
	deliverQueued bool                 // what is queued for the peer is still to be written

	closing context.Context    // done when the owner has closed the conn: what has arrived reaches nobody then. After done alone it is still handed on
	close   context.CancelFunc // ends closing; conn.close calls it
}

// newConn makes a conn of a WebSocket that is open, on the wire w, and starts its goroutines, for conn.close to end. cfg is what client
// and server do differently.
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

// watchStalls returns the StallWatch of a Receive with this ctx, whose Sends also end when the conn is closed, and the
// function that ends it.
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

// receiveSink is the Sink of the caller of Receive, with a StallWatch, and with in told of what was taken.
type receiveSink struct {
	in    *inbound           // told of each message that was taken
	sink  bridge.Sink        // the Sink of the caller of Receive
	watch *bridge.StallWatch // the StallWatch that makes the Sends
}

// TrySend implements bridge.Sink: it passes the message on, if it is taken at once.
func (r *receiveSink) TrySend(m jsonrpc.Message) bool {
	if !r.sink.TrySend(m) {
		return false
	}
	r.in.noteTaken()
	return true
}

// Send implements bridge.Sink: it passes the message on by way of the StallWatch, which gives up if the peer has gone
// and the Sink takes nothing.
func (r *receiveSink) Send(_ context.Context, m jsonrpc.Message) error {
	err := r.watch.Send(r.sink, m)
	if err == nil {
		r.in.noteTaken()
	}
	return err
}

// hungUp returns a function for a StallWatch, which asks without waiting whether the client is gone: net.ErrClosed
// says so. A client that sends nothing more counts as gone. It returns nil if the system cannot tell, and if the peer
// is a server: what a server sent before its end is still handed on without haste.
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

// noteOutgoing is called with a message before the peer can know of it. Of those for a client it notes requests, and
// the version that was negotiated. It may be called again for the same message.
func (c *conn) noteOutgoing(m jsonrpc.Message) {
	if c.peerIsClient {
		c.calls.revision.NoteSent(m)
		c.calls.serverRequests.NoteSent(m)
	}
}

// noteSent is called when a message was written or queued: a response answers one of the client's calls, and the idle
// time begins anew.
func (c *conn) noteSent(m jsonrpc.Message) {
	if c.peerIsClient && m.Kind() == jsonrpc.Response {
		c.calls.noteAnswered()
	}
	c.resetIdleTimer()
}

// maxInlineCalls is how many requests of a client may be open for messages to it to be written
// by whoever brings them. When there are more the next answer comes soon: the writer's
// goroutine writes several at a time. To a server, such writes do not depend on it.
const maxInlineCalls = 4

// TrySend implements bridge.Conn. Where few calls are open (maxInlineCalls), a small message is
// written by the caller if the peer has taken all that was sent before; otherwise it is queued, if there is room.
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

// writeInlineIfFewCalls writes a small message itself, as writeInline does, if no more than maxInlineCalls of the
// client's calls are open (of a server, none ever is); false: it was not written.
func (c *conn) writeInlineIfFewCalls(m jsonrpc.Message) bool {
	return c.calls.openRequests.Load() <= maxInlineCalls && c.writeInline(m)
}

// close is called by the conn's owner. It has what was sent delivered, ends the conversation with this status and text
// in the close frame, unless it has ended already, and returns when all goroutines have ended.
func (c *conn) close(code websocket.StatusCode, reason string) { c.closeWith(errClosed, code, reason) }

// closeWith ends the conversation as close does, but Receive and Send return err and not errClosed. It may be called beside the
// owner. The close frame is decided on before Receive ends: whoever learns of that may call close, too.
func (c *conn) closeWith(err error, code websocket.StatusCode, reason string) {
	c.end.close()
	c.finish(err, code, reason, true)
	c.in.Abort(err)
	c.wg.Wait()
	c.idleTimer.Stop()
	c.in.freeHeld()
}

// finish ends the conversation; only the first call counts. err is why: Receive and Send return it. code and reason go
// into the close frame. What is queued for the peer is still written if deliverQueued is true. It does not wait.
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

// isDone reports whether c is closed.
func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// connectionLostError returns the error that says that the connection to the peer was lost: the network has failed
// with err, or the peer has taken nothing for too long. It does not wrap err: io.EOF would be an orderly end to
// others.
func (c *conn) connectionLostError(err error) error {
	if c.wire.stalled.Load() {
		return fmt.Errorf("%s is gone: %w", c.peer, errStalled)
	}
	return fmt.Errorf("the connection to %s was lost: %v", c.peer, rootCause(err))
}

// rootCause returns the innermost error that err wraps: what the library says around it is of no use to others.
func rootCause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
