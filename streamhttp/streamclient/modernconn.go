package streamclient

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// modernHints are what to do about some HTTP statuses.
var modernHints = map[int]string{
	404: "is the path of the URL right? It is often /mcp",
	405: "there is no Streamable HTTP server at this path",
}

// modernConn is the Conn that ModernClient.Dial returns. Its goroutines are
// one per message being sent, which reads the whole reply. All are started by
// spawn and awaited by Close.
type modernConn struct {
	client *ModernClient
	url    *url.URL
	peer   *httpdial.Peer
	host   string      // the Host header, "": the URL's
	header http.Header // on every request
	rt     http.RoundTripper
	idle   func() // closes the transport's idle connections
	opts   ModernOptions
	log    hclog.Logger

	ctx    context.Context // done when Close begins
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	once   sync.Once

	in       chan jsonrpc.Message // for Recv
	requests chan struct{}        // one element per request that has a goroutine
	notes    chan struct{}        // and per notification
	answers  chan struct{}        // and per answer to a request of the server

	tools modernTools

	mu     sync.Mutex // is never held while waiting
	closed bool
	calls  map[jsonrpc.ID]*modernCall // who takes a call out ends it
	asked  int64                      // how many ids of the bridge's own there were
}

func newModernConn(client *ModernClient, u *url.URL, header http.Header, rt http.RoundTripper, idle func(), opts ModernOptions) *modernConn {
	c := &modernConn{
		client: client, url: u, peer: httpdial.NewPeer(u, header, modernHints), host: header.Get("Host"), header: header,
		rt: rt, idle: idle, opts: opts, log: opts.Logger,
		in: make(chan jsonrpc.Message, maxQueued),
		// Twice MaxInFlight: a goroutine lingers a moment after its request.
		requests: make(chan struct{}, 2*opts.MaxInFlight),
		notes:    make(chan struct{}, maxNotes),
		answers:  make(chan struct{}, maxNotes),
		calls:    make(map[jsonrpc.ID]*modernCall),
	}
	header.Del("Host")
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// modernCall is one message on its way to the server and, for a request, what
// comes back.
type modernCall struct {
	msg    jsonrpc.Message
	id     jsonrpc.ID
	method string

	ctx    context.Context
	cancel context.CancelFunc // ends the POST, and the reading of its reply

	private bool          // the bridge's own: nothing of it is for Recv
	session string        // what a private one was given as Mcp-Session-Id
	heard   bool          // something of the reply was handed on
	sent    chan struct{} // of a notification: closed when the server has taken it
}

func (c *modernConn) newCall(ctx context.Context, m jsonrpc.Message) *modernCall {
	call := &modernCall{msg: m, id: m.ID(), method: m.Method()}
	call.ctx, call.cancel = context.WithCancel(ctx)
	return call
}

// ownID returns an id that no client's request has: those of the Conn are the
// Mux's integers.
func (c *modernConn) ownID() jsonrpc.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return jsonrpc.StringID("mcp-bridge-" + jsonrpc.IntID(c.asked).String())
}

// spawn runs f in a goroutine that Close awaits; false: the Conn is closed.
func (c *modernConn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// Recv returns the next message from the server, whichever reply it came in.
func (c *modernConn) Recv(ctx context.Context) (jsonrpc.Message, error) {
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
	return jsonrpc.Message{}, context.Cause(c.ctx)
}

// push queues a message for Recv. It waits while the queue is full: the reply
// that the message came in is then not read, and TCP slows the server.
func (c *modernConn) push(ctx context.Context, m jsonrpc.Message) {
	select {
	case c.in <- m:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// Send sends m in a POST of its own (ME1). Requests keep no order: HTTP knows
// none, and nothing in this revision depends on it. A notification was taken by
// the server when Send returns, or it has waited for a second.
//
// Send waits for the server and for Recv to be called, but never in order to
// cancel.
func (c *modernConn) Send(ctx context.Context, m jsonrpc.Message) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case m.Kind() == jsonrpc.Request:
		return c.sendRequest(ctx, m)
	case m.Kind() == jsonrpc.Response:
		c.sendAnswer(m)
	case m.Method() == "notifications/cancelled":
		c.withdraw(m.RequestID())
	default:
		return c.sendNote(ctx, m)
	}
	return nil
}

func (c *modernConn) acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

func (c *modernConn) sendRequest(ctx context.Context, m jsonrpc.Message) error {
	if err := c.acquire(ctx, c.requests); err != nil {
		return err
	}
	call := c.newCall(c.ctx, m)
	fault, err := c.enter(call)
	if fault != nil {
		c.log.Warn("request refused", "method", call.method, "reason", fault.Reason)
		c.push(ctx, fault.Response(call.id).WithRelated(call.id))
		err = ctx.Err()
	} else if err == nil {
		return nil
	}
	call.cancel()
	<-c.requests
	return err
}

// enter takes a request into the books and starts its goroutine.
func (c *modernConn) enter(call *modernCall) (*httpdial.Fault, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if _, dup := c.calls[call.id]; dup {
		return nil, errDuplicate
	}
	if len(c.calls) >= c.opts.MaxInFlight {
		return tooManyFault(), nil
	}
	c.calls[call.id] = call
	c.wg.Go(func() { c.run(call); <-c.requests })
	return nil, nil
}

// take takes a call out of the books; false: it was cancelled before.
func (c *modernConn) take(call *modernCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.id] != call {
		return false
	}
	delete(c.calls, call.id)
	return true
}

// withdraw cancels the request that the client knows by this id: its reply is
// closed, which tells the server (ME5), and no answer is given. What is unknown
// or over is none of our business (J12).
func (c *modernConn) withdraw(id jsonrpc.ID) {
	c.mu.Lock()
	key, call, ok := jsonrpc.Find(c.calls, id)
	if ok {
		delete(c.calls, key)
	}
	c.mu.Unlock()
	if ok {
		call.cancel()
	}
}

// sendNote posts a notification and waits a moment until it was taken, so that
// what its sender sends next cannot overtake it.
func (c *modernConn) sendNote(ctx context.Context, m jsonrpc.Message) error {
	if err := c.acquire(ctx, c.notes); err != nil {
		return err
	}
	within, stop := context.WithTimeout(c.ctx, noteTimeout)
	call := c.newCall(within, m)
	call.sent = make(chan struct{})
	if !c.spawn(func() { c.runNote(call); stop(); <-c.notes }) {
		stop()
		<-c.notes
		return context.Cause(c.ctx)
	}
	t := time.NewTimer(noteWait)
	defer t.Stop()
	select {
	case <-call.sent:
	case <-t.C:
	case <-c.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Close cuts off what is in progress, which gets no answer, and returns when
// every goroutine has ended.
func (c *modernConn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.cancel(errClosed)
		c.wg.Wait()
		c.idle()
	})
	return nil
}
