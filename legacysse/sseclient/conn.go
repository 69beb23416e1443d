package sseclient

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
	queueSize         = 64                    // messages for Recv that may wait
	maxNotes          = 64                    // notifications and responses on their way at once
	aheadWait         = time.Second           // how long a message waits for the one ahead of it
	overtakeWait      = 20 * time.Millisecond // and for its acceptance, once it is written
	noteTimeout       = time.Minute           // how long the server may take to accept a notification
	lingerTime        = 2 * time.Second       // how long a POST may go on after its request was answered
	initializeTimeout = time.Minute           // how long the answer to initialize may take
	restoreTimeout    = 10 * time.Second      // for subscriptions and log level of a new session
)

var (
	errClosed    = errors.New("sseclient: the connection is closed")
	errDuplicate = errors.New("sseclient: a request with this id is already in progress")
)

// conn is the Conn that Client.Dial returns. Its goroutines are the
// keeper, which sees to it that there is a session; the reader of the event
// stream; and one per POST. All are started by spawn and awaited by Close.
type conn struct {
	url    *url.URL
	peer   *httpdial.Peer // explains what goes wrong
	host   string         // the Host header, "": the URL's
	header http.Header    // on every request
	rt     http.RoundTripper
	idle   func() // closes the transport's idle connections
	opts   Options
	log    hclog.Logger

	ctx    context.Context // done when Close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once

	refusals sync.WaitGroup // of requests, from the entry that calls for it on

	in       chan jsonrpc.Message // for Recv
	finished chan struct{}        // closed when Recv is to end with st.end
	turn     chan struct{}        // has room for who may send next
	requests chan struct{}        // one element per request that has a goroutine
	notes    chan struct{}        // and per notification or response
	kick     chan struct{}        // ends the keeper's pause

	mu sync.Mutex // guards st and is never held while waiting
	st state
}

// hints are what the texts about the HTTP status of the GET end in.
var hints = map[int]string{
	http.StatusBadRequest:       "is it a Streamable HTTP server?",
	http.StatusNotFound:         "is the path of the URL right? It is often /sse",
	http.StatusMethodNotAllowed: "there is no HTTP+SSE server at this path; is it a Streamable HTTP server?",
}

func newConn(u *url.URL, header http.Header, rt http.RoundTripper, idle func(), opts Options) *conn {
	c := &conn{
		url: u, peer: httpdial.NewPeer(u, header, hints), host: header.Get("Host"), header: header,
		rt: rt, idle: idle, opts: opts, log: opts.Logger,
		in:       make(chan jsonrpc.Message, queueSize),
		finished: make(chan struct{}),
		turn:     make(chan struct{}, 1),
		// Twice MaxInFlight: a goroutine may linger a moment after its request.
		requests: make(chan struct{}, 2*opts.MaxInFlight),
		notes:    make(chan struct{}, maxNotes),
		kick:     make(chan struct{}, 1),
	}
	header.Del("Host")
	c.ctx, c.cancel = context.WithCancel(context.Background())
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
		return errClosed
	}
	return ctx.Err()
}

// finish ends Recv with err, after what it has still to return, and Send.
func (c *conn) finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.end == nil {
		c.st.end = err
		close(c.finished)
	}
}

// Recv returns the next message from the server.
func (c *conn) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := c.over(ctx); err != nil {
		return jsonrpc.Message{}, err
	}
	select {
	case m := <-c.in:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-c.ctx.Done():
		return jsonrpc.Message{}, errClosed
	case <-c.finished:
	}
	select { // what came before the end still counts
	case m := <-c.in:
		return m, nil
	default:
		return jsonrpc.Message{}, c.st.end
	}
}

// push queues a message for Recv. It waits while the queue is full: the event
// stream is then not read, and TCP slows the server.
func (c *conn) push(ctx context.Context, m jsonrpc.Message) {
	select {
	case c.in <- m:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// Send sends m in a POST of its own. It keeps the order: no message sets out
// before the one ahead of it was accepted, or was written if acceptance takes
// long (servers of old accept a call by finishing it); none but a response
// before initialize was answered; and no cancellation before its request was
// accepted. Each of these waits has an end, because the message at hand may be
// what the server waits for.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := c.over(ctx); err != nil {
		return err
	}
	call := newCall(c, m)
	slots := c.notes
	if call.kind == jsonrpc.Request {
		slots = c.requests
	}
	if err := c.acquire(ctx, slots); err != nil {
		call.cancel()
		return err
	}
	entry, err := c.takeTurn(ctx, call)
	if err == nil && entry.send {
		defer func() { <-c.turn }()
		if !c.spawn(func() { c.carry(call); <-slots }) {
			return errClosed
		}
		return c.awaitSent(ctx, call)
	}
	<-slots
	if !entry.waits { // for a session, which the keeper is getting
		call.cancel()
	}
	if entry.fault != nil {
		c.log.Warn("request refused", "method", call.method, "reason", entry.fault.Reason)
		c.push(ctx, entry.fault.Response(call.id))
		c.refusals.Done()
	}
	return err
}

// acquire puts an element into slots.
func (c *conn) acquire(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return errClosed
	}
}

// takeTurn waits until nobody else is sending and the gate is open, and enters
// the call into the books. If it is to be sent, the turn is the caller's.
func (c *conn) takeTurn(ctx context.Context, call *call) (entry, error) {
	for {
		if err := c.acquire(ctx, c.turn); err != nil {
			return entry{}, err
		}
		e := c.enter(call)
		if e.drop != "" {
			c.log.Debug("message dropped: "+e.drop, "method", call.method)
		}
		if e.send {
			if e.after != nil {
				c.await(ctx, e.after.accepted, nil, aheadWait)
			}
			return e, nil
		}
		<-c.turn
		if e.gate == nil {
			return e, e.err
		}
		select {
		case <-e.gate:
		case <-c.finished:
		case <-ctx.Done():
			return entry{}, ctx.Err()
		case <-c.ctx.Done():
			return entry{}, errClosed
		}
	}
}

// awaitSent waits until the next message may set out.
func (c *conn) awaitSent(ctx context.Context, call *call) error {
	written := call.written
	if call.kind == jsonrpc.Notification {
		written = nil // what it is about may depend on it
	}
	c.await(ctx, call.accepted, written, aheadWait)
	if call.isAccepted() {
		return nil
	}
	return ctx.Err()
}

// await waits for accepted; but no longer than limit, and than a moment once
// written is closed.
func (c *conn) await(ctx context.Context, accepted, written <-chan struct{}, limit time.Duration) {
	select {
	case <-accepted:
		return
	default:
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		select {
		case <-written:
			written = nil
			t.Reset(overtakeWait)
			continue
		case <-accepted:
		case <-t.C:
		case <-ctx.Done():
		case <-c.ctx.Done():
		}
		return
	}
}

// Close closes the event stream, which ends the session, and returns when
// every goroutine has ended. What is still in progress is cut off without an answer.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.st.closed = true
		c.mu.Unlock()
		c.cancel()
		c.wg.Wait()
		c.idle()
	})
	return nil
}
