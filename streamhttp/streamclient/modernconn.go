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

// modernStatusHints is statusHints of a ModernClient.
var modernStatusHints = map[int]string{
	404: "is the path of the URL right? It is often /mcp",
	405: "there is no Streamable HTTP server at this path",
}

// modernConn is the Conn that ModernClient.Dial returns. Its goroutines are one per
// message being sent, which reads the whole reply and hands on what comes in it itself,
// see remoteconn.Base.Deliver.
type modernConn struct {
	remoteconn.Base
	client *ModernClient
	target *httpdial.Target
	opts   ModernOptions
	log    hclog.Logger

	requestSlots      remoteconn.Slots // one for each request that has a goroutine
	notificationSlots remoteconn.Slots // and for each notification
	answerSlots       remoteconn.Slots // and for each answer to a request of the server

	tools modernTools

	mu        sync.Mutex                 // is never held while waiting
	calls     map[jsonrpc.ID]*modernCall // who takes a call out ends it
	lastOwnID int64                      // how many ids of the bridge's own there were
}

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
	msg    jsonrpc.Message
	id     jsonrpc.ID
	method string

	ctx    context.Context
	cancel context.CancelFunc // ends the POST, and the reading of its reply

	isOwn     bool          // the bridge's own: nothing of it is for Receive
	sessionID string        // the Mcp-Session-Id of the reply, if isOwn; "": there was none
	delivered bool          // something of the reply was handed on
	accepted  chan struct{} // of a notification: closed when the server has taken or refused it, or cannot be reached
}

func (c *modernConn) newCall(ctx context.Context, m jsonrpc.Message) *modernCall {
	call := &modernCall{msg: m, id: m.ID(), method: m.Method()}
	call.ctx, call.cancel = context.WithCancel(ctx)
	return call
}

// ownID returns an id for a request of the bridge's own. No client's request has such an id:
// the Mux gives them integers.
func (c *modernConn) ownID() jsonrpc.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastOwnID++
	return jsonrpc.StringID("mcp-bridge-" + jsonrpc.IntID(c.lastOwnID).String())
}

// TrySend implements bridge.Conn. It sends all but notifications, as far as a slot is free; a
// cancellation it carries out.
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

// Send sends m in a POST of its own (ME1). Requests keep no order: HTTP knows
// none, and nothing in this revision depends on it. A notification was taken by
// the server when Send returns, or it has waited for a second.
//
// Send waits for the server and for Receive to be called, but never in order to
// cancel.
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

// sendRequest is Send for a request.
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

// claim takes a call out of calls; false: it was cancelled before.
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
