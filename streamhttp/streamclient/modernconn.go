package streamclient

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// modernStatusHints says what the text of a Fault of a ModernClient ends in, by the HTTP status of the
// reply.
var modernStatusHints = map[int]string{
	404: "is the path of the URL right? It is often /mcp",
	405: "there is no Streamable HTTP server at this path",
}

// modernConn is the Conn that ModernClient.Dial returns. It has a goroutine for each
// message being sent, which reads the whole reply and itself hands on what comes in it
// (remoteconn.Base.Deliver).
type modernConn struct {
	remoteconn.Base
	client *ModernClient    // remembers which forms of headers the server wants
	target *httpdial.Target // the server
	opts   ModernOptions    // those of client, with the defaults filled in
	log    hclog.Logger     // the Logger of opts

	requestSlots      remoteconn.Slots // a slot for each request that has a goroutine
	notificationSlots remoteconn.Slots // a slot for each notification that has a goroutine
	answerSlots       remoteconn.Slots // a slot for each answer to a request of the server that has a goroutine

	tools modernTools // what is known of the server's tools

	mu        sync.Mutex                 // guards what follows; never held while waiting
	calls     map[jsonrpc.ID]*modernCall // the client's requests in progress, by id; who takes a call out ends it
	lastOwnID int64                      // the number in the id that ownID has returned last
}

// newModernConn returns a Conn of client for the server target; opts have their defaults.
func newModernConn(client *ModernClient, target *httpdial.Target, opts ModernOptions) *modernConn {
	c := &modernConn{
		client: client, target: target, opts: opts, log: opts.Logger,
		// Twice MaxInFlight: a goroutine lingers a moment after its request.
		requestSlots:      make(remoteconn.Slots, 2*opts.MaxInFlight),
		notificationSlots: make(remoteconn.Slots, maxOneWay),
		answerSlots:       make(remoteconn.Slots, maxOneWay),
		calls:             make(map[jsonrpc.ID]*modernCall),
	}
	c.Init()
	return c
}

// modernCall is one message on its way to the server and, for a request, what
// comes back.
type modernCall struct {
	msg    jsonrpc.Message // the message
	id     jsonrpc.ID      // the id of msg
	method string          // the method of msg

	ctx    context.Context    // the ctx of the POST, and of the reading of its reply
	cancel context.CancelFunc // ends ctx

	isOwn     bool          // it is the bridge's own: nothing of its reply is for Receive
	sessionID string        // the Mcp-Session-Id of the reply, if isOwn; "": there was none
	delivered bool          // Receive was handed a notification of the reply
	accepted  chan struct{} // of a notification: closed when the server has taken or refused it, or cannot be reached
}

// newCall returns the call for m. Its ctx ends with the given one.
func (c *modernConn) newCall(ctx context.Context, m jsonrpc.Message) *modernCall {
	call := &modernCall{msg: m, id: m.ID(), method: m.Method()}
	call.ctx, call.cancel = context.WithCancel(ctx)
	return call
}

// ownID returns an id that no other request has: for a request of the bridge's own, and for a client's request that is
// posted again because its reply was lost (ME6). No client's request comes with such an id: the Mux gives them integers.
func (c *modernConn) ownID() jsonrpc.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastOwnID++
	return jsonrpc.StringID("mcp-bridge-" + jsonrpc.IntID(c.lastOwnID).String())
}

// TrySend implements bridge.Conn. It takes requests, if a slot is free and beginCall begins them,
// responses, and notifications/cancelled, but no other notifications.
func (c *modernConn) TrySend(m jsonrpc.Message) bool {
	switch {
	case c.Context().Err() != nil:
		return false
	case m.Kind() == jsonrpc.Response:
		c.sendAnswer(m)
	case m.Method() == "notifications/cancelled":
		c.cancel(m.CancelledID())
	case m.Kind() != jsonrpc.Request || !c.requestSlots.TryAcquire():
		return false
	default:
		call := c.newCall(c.Context(), m)
		if fault, err := c.beginCall(call); fault != nil || err != nil {
			call.cancel()
			c.requestSlots.Release()
			return false
		}
	}
	return true
}

// Send sends m in a POST of its own (ME1), but for notifications/cancelled, which closes the
// reply to its request. Requests keep no order: HTTP knows
// none, and nothing in this revision depends on it. Send of any other notification waits until the
// server has taken it, for a second at most.
//
// Send waits for the server and for Receive to be called, but never in order to
// cancel, or to send a response.
func (c *modernConn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := c.Err(ctx); err != nil {
		return err
	}
	switch {
	case m.Kind() == jsonrpc.Request:
		return c.sendRequest(ctx, m)
	case m.Kind() == jsonrpc.Response:
		c.sendAnswer(m)
	case m.Method() == "notifications/cancelled":
		c.cancel(m.CancelledID())
	default:
		return c.sendNotification(ctx, m)
	}
	return nil
}

// sendRequest starts the goroutine that posts the request m. It may wait for a slot; if too many
// requests are in progress, it answers m with an error.
func (c *modernConn) sendRequest(ctx context.Context, m jsonrpc.Message) error {
	if err := c.requestSlots.Acquire(ctx, &c.Base); err != nil {
		return err
	}
	call := c.newCall(c.Context(), m)
	fault, err := c.beginCall(call)
	if fault != nil {
		c.log.Warn("request refused", "method", call.method, "reason", fault.Reason)
		err = c.QueueErrorResponse(ctx, fault.Response(call.id).WithRelated(call.id))
	} else if err == nil {
		return nil
	}
	call.cancel()
	c.requestSlots.Release()
	return err
}

// beginCall enters a request in calls and starts its goroutine, which releases the slot. If
// the result is not nil, nothing was begun: the request is to be refused with the Fault, or
// cannot be taken.
func (c *modernConn) beginCall(call *modernCall) (*httpdial.Fault, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, dup := c.calls[call.id]; dup {
		return nil, remoteconn.ErrDuplicateID
	}
	if len(c.calls) >= c.opts.MaxInFlight {
		return remoteconn.TooManyRequestsFault(), nil
	}
	c.calls[call.id] = call
	if !c.Go(func() { c.run(call); c.requestSlots.Release() }) {
		delete(c.calls, call.id)
		return nil, remoteconn.ErrClosed
	}
	return nil, nil
}

// claim takes a call out of calls, so that the caller has to answer it; false: it was cancelled before.
func (c *modernConn) claim(call *modernCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[call.id] != call {
		return false
	}
	delete(c.calls, call.id)
	return true
}

// cancel cancels the request that the client knows by this id: its reply is
// closed, which tells the server (ME5), and no answer is given. What is unknown
// or over is none of our business (J12).
func (c *modernConn) cancel(id jsonrpc.ID) {
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

// sendNotification posts a notification and waits a moment until it was taken, so that
// what its sender sends next cannot overtake it.
func (c *modernConn) sendNotification(ctx context.Context, m jsonrpc.Message) error {
	if err := c.notificationSlots.Acquire(ctx, &c.Base); err != nil {
		return err
	}
	within, stop := context.WithTimeout(c.Context(), oneWayTimeout)
	call := c.newCall(within, m)
	call.accepted = make(chan struct{})
	if !c.Go(func() { c.runNotification(call); stop(); c.notificationSlots.Release() }) {
		stop()
		c.notificationSlots.Release()
		return c.Err(ctx)
	}
	t := time.NewTimer(notificationWait)
	defer t.Stop()
	select {
	case <-call.accepted:
	case <-t.C:
	case <-c.Context().Done():
	case <-ctx.Done(): // it has set out all the same
	}
	return nil
}

// Close cuts off what is in progress, which gets no answer, and returns when
// every goroutine has ended.
func (c *modernConn) Close(error) error {
	c.Shutdown(c.target.Close)
	return nil
}
