package streamclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxQueued      = 64               // messages for Recv that may wait
	maxNotes       = 64               // notifications and responses on their way at once
	aheadWait      = time.Second      // how long Send waits until the message ahead was written
	noteWait       = time.Second      // how long Send waits until a notification was accepted
	listenWait     = time.Second / 10 // how long what follows initialized waits for the standalone stream
	noteTimeout    = time.Minute      // how long the server may take to accept one
	linger         = time.Second / 2  // how long a stream may stay open after its response
	cancelWait     = 2 * time.Second  // and after its call was cancelled
	restoreTimeout = 10 * time.Second // for subscriptions and log level of a new session
)

var (
	errClosed    = errors.New("streamhttp: the connection is closed")
	errDuplicate = errors.New("streamhttp: a request with this id is already in progress")
)

// conn is the Conn that Client.Dial returns. Its goroutines are one per
// message being sent, which reads the whole reply (run); one per session that
// reads the standalone stream (listen); and one while there is no session that
// should be (repair). All are started by spawn and awaited by Close.
type conn struct {
	url    *url.URL
	peer   *httpdial.Peer
	host   string      // the Host header, "": the URL's
	header http.Header // on every request
	rt     http.RoundTripper
	idle   func() // closes the transport's idle connections
	opts   Options
	log    hclog.Logger

	ctx    context.Context // done when Close begins
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	once   sync.Once

	refusals sync.WaitGroup // of refuse, from the entry that calls for it on

	in       chan jsonrpc.Message // for Recv
	requests chan struct{}        // one element per request that has a goroutine
	notes    chan struct{}        // and per notification or response

	mu sync.Mutex // guards st and is never held while waiting
	st state
}

func newConn(u *url.URL, header http.Header, rt http.RoundTripper, idle func(), opts Options) *conn {
	c := &conn{
		url: u, peer: httpdial.NewPeer(u, header, hints), host: header.Get("Host"), header: header,
		rt: rt, idle: idle, opts: opts, log: opts.Logger,
		in: make(chan jsonrpc.Message, maxQueued),
		// Twice MaxInFlight: a goroutine lingers a moment after its request.
		requests: make(chan struct{}, 2*opts.MaxInFlight),
		notes:    make(chan struct{}, maxNotes),
	}
	header.Del("Host")
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.st.calls = make(map[jsonrpc.ID]*call)
	return c
}

// spawn runs f in a goroutine that Close awaits; false: the Conn is closed.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// over returns why nothing may begin any more.
func (c *conn) over(ctx context.Context) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return ctx.Err()
}

// Recv returns the next message from the server, whichever stream it came on.
func (c *conn) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return jsonrpc.Message{}, err
	}
	if c.ctx.Err() == nil {
		select {
		case m := <-c.in:
			return m, nil
		case <-ctx.Done():
			return jsonrpc.Message{}, ctx.Err()
		case <-c.ctx.Done():
		}
	}
	c.mu.Lock()
	closed := c.st.closed
	c.mu.Unlock()
	if !closed { // it has ended by itself: first what came before
		select {
		case m := <-c.in:
			return m, nil
		default:
		}
	}
	return jsonrpc.Message{}, context.Cause(c.ctx)
}

// push queues a message for Recv. It waits while the queue is full: the
// stream that the message came on is then not read, and TCP slows the server.
func (c *conn) push(ctx context.Context, m jsonrpc.Message) {
	select {
	case c.in <- m:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// Send sends m in a POST of its own (LE1). It keeps the order: no message sets
// out before the one ahead of it was written (for at most a second: a server
// may leave a long one unread), none but a response before initialize was
// answered, and after a notification none before the server has accepted it
// (for at most a second). HTTP knows no order between requests, so
// that is all that can be done.
//
// Send waits for time to pass, for the server, and for Recv to be called, but
// never for what only a later message can bring about.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := c.over(ctx); err != nil {
		return err
	}
	call := newCall(c, m)
	slots := c.notes
	if call.kind == jsonrpc.Request {
		slots = c.requests
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		call.cancel()
		return ctx.Err()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	started, err := c.launch(ctx, call, slots)
	if !started {
		call.cancel()
		<-slots
	}
	if err != nil || !started || call.kind != jsonrpc.Notification {
		return err
	}
	return c.awaitNote(ctx, call)
}

// launch starts the goroutine of a message when its turn has come. A message
// that is not to be sent is dealt with here.
func (c *conn) launch(ctx context.Context, call *call, slots chan struct{}) (started bool, err error) {
	ahead, fault, err := c.enter(ctx, call)
	switch {
	case fault != nil:
		c.refuse(ctx, call, fault)
		return false, ctx.Err()
	case ahead == nil:
		return false, err
	}
	err = c.awaitAhead(ctx, ahead)
	if err == nil && !c.spawn(func() { c.run(call); <-slots }) {
		err = context.Cause(c.ctx)
	}
	if err != nil {
		if !c.abandon(call) {
			err = nil // it was answered meanwhile
		}
		return false, err
	}
	return true, nil
}

// awaitAhead waits until the message ahead was written. It goes by when that
// takes long: the message now at hand may be what cancels it.
func (c *conn) awaitAhead(ctx context.Context, ahead <-chan struct{}) error {
	select {
	case <-ahead: // mostly so
		return nil
	default:
	}
	t := time.NewTimer(aheadWait)
	defer t.Stop()
	select {
	case <-ahead:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	return nil
}

// awaitNote waits until a notification was accepted, so that what is sent
// next cannot overtake it.
func (c *conn) awaitNote(ctx context.Context, call *call) error {
	select {
	case <-call.sent: // mostly so when it was quick
		return nil
	default:
	}
	t := time.NewTimer(noteWait)
	defer t.Stop()
	defer call.setSent()
	select {
	case <-call.sent:
	case <-t.C:
	case <-c.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// run carries one message from beginning to end.
func (c *conn) run(call *call) {
	fault := c.exchange(call)
	if fault == nil && call.method == "notifications/initialized" {
		c.listenFirst(c.current())
	}
	call.setSent()
	if fault != nil && !c.unopened(call, fault) {
		c.fail(c.ctx, call, fault)
	}
	call.cancel()
	c.mu.Lock()
	replaced := call.replaced
	c.mu.Unlock()
	if replaced != nil {
		replaced.stop()
		c.deleteSession(replaced)
	}
}

// Close ends the session with a DELETE (LE11) and returns when every
// goroutine has ended. What is still in progress is cut off without an answer.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.st.closed = true
		c.mu.Unlock()
		c.cancel(errClosed)
		c.wg.Wait()
		for _, s := range c.shut() {
			c.deleteSession(s)
		}
		c.idle()
	})
	return nil
}
