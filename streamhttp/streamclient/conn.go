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

const (
	maxOneWay        = 64               // how many notifications and responses may be on their way to the server at once; over 2026-07-28, as many of each
	aheadTimeout     = time.Second      // how long Send waits until the message ahead was written
	notificationWait = time.Second      // how long Send waits until a notification was accepted
	listenTimeout    = time.Second / 10 // how long messages behind notifications/initialized wait until the server has answered the GET for the standalone stream
	oneWayTimeout    = time.Minute      // how long the server may take to accept a notification or a response
	streamLinger     = time.Second / 2  // how long the stream of a call may stay open after the response
	cancelLinger     = 2 * time.Second  // how long the stream of a call may stay open after the POST with the cancellation of the call is over
	maxCancelLinger  = 10 * time.Second // how long the stream of a call may stay open after the client has cancelled the call, whatever the server does
)

// conn is the Conn that Client.Dial returns. It has a goroutine for each message
// being sent, which reads the whole reply (run); one for each session, which reads the
// standalone stream (listen); and one while a session is missing (repair). Each of them
// itself hands on what it has for the client (remoteconn.Base.Deliver).
type conn struct {
	remoteconn.Base
	target *httpdial.Target // the server
	opts   Options          // those of the Client, with the defaults filled in
	log    hclog.Logger     // the Logger of opts

	requestSlots remoteconn.Slots // a slot for each request that has a goroutine
	oneWaySlots  remoteconn.Slots // a slot for each notification or response that has a goroutine
	refusing     sync.WaitGroup   // requests that are being refused: from tryAdmit until refuse has queued the error response; giveUp waits for them before it ends the Conn

	ledger remoteconn.Ledger[*call, *session] // the requests in progress; its lock guards the state, too
	state  state                              // the session, and the order of messages

	renewer  renewer  // gets a new session for a lost one
	listener listener // reads the standalone streams
}

// newConn returns the Conn for the server target; opts have their defaults.
func newConn(target *httpdial.Target, opts Options) *conn {
	c := &conn{
		target: target, opts: opts, log: opts.Logger,
		// Twice MaxInFlight: a goroutine lingers a moment after its request.
		requestSlots: make(remoteconn.Slots, 2*opts.MaxInFlight),
		oneWaySlots:  make(remoteconn.Slots, maxOneWay),
	}
	c.renewer.c, c.listener.c = c, c
	c.Init()
	return c
}

// slots returns the Slots from which a message of this kind takes one.
func (c *conn) slots(kind jsonrpc.Kind) remoteconn.Slots {
	if kind == jsonrpc.Request {
		return c.requestSlots
	}
	return c.oneWaySlots
}

// TrySend implements bridge.Conn: it sends a request, other than initialize, if a slot is free and the
// request need not wait (admitNow). It takes nothing else.
func (c *conn) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Request || m.Method() == "initialize" || !c.requestSlots.TryAcquire() {
		return false
	}
	call := newCall(c, m)
	if !c.admitNow(call) {
		call.cancel()
		c.requestSlots.Release()
		return false
	}
	if !c.Go(func() { c.run(call); c.requestSlots.Release() }) {
		c.endUnanswered(call)
		call.cancel()
		c.requestSlots.Release()
		return false
	}
	return true
}

// Send sends m in a POST of its own (LE1). It keeps the order: no message sets
// out before the one ahead of it was written (for at most a second: a server
// may leave a long one unread), none but a response before initialize was
// answered, and after a notification none before the server has accepted it
// (for at most a second). HTTP knows no order between requests, so
// that is all that can be done.
//
// Send waits for time to pass, for the server, and for Receive to be called, but
// never for what only a later message can bring about.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := c.Err(ctx); err != nil {
		return err
	}
	slots := c.slots(m.Kind())
	if err := slots.Acquire(ctx, &c.Base); err != nil {
		return err
	}
	call := newCall(c, m)
	started, err := c.launch(ctx, call, slots)
	if !started {
		call.end()
		slots.Release()
	}
	if started && call.kind == jsonrpc.Notification {
		c.awaitNotification(ctx, call)
	}
	return err
}

// launch waits for the turn of a message, and starts its goroutine, which releases the slot. started
// is false if the message is not sent: it was answered, dropped, or cannot be taken (err).
func (c *conn) launch(ctx context.Context, call *call, slots remoteconn.Slots) (started bool, err error) {
	ahead, fault, err := c.admit(ctx, call)
	switch {
	case fault != nil:
		c.refuse(ctx, call, fault)
		return false, ctx.Err()
	case ahead == nil:
		return false, err
	}
	err = c.awaitAhead(ctx, ahead)
	if err == nil && !c.Go(func() { c.run(call); slots.Release() }) {
		err = c.Err(ctx)
	}
	if err != nil {
		if !c.endUnanswered(call) {
			err = nil // it was answered meanwhile
		}
		return false, err
	}
	return true, nil
}

// awaitAhead waits until ahead is closed, because the message ahead was written, but no longer than
// aheadTimeout: the message now at hand may be what cancels it. The error says that ctx is done, or
// the Conn has ended.
func (c *conn) awaitAhead(ctx context.Context, ahead <-chan struct{}) error {
	select {
	case <-ahead: // mostly so
		return nil
	default:
	}
	t := time.NewTimer(aheadTimeout)
	defer t.Stop()
	select {
	case <-ahead:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Context().Done():
		return c.Err(ctx)
	}
	return nil
}

// awaitNotification waits until a notification was accepted, for notificationWait at most, so that
// what is sent next cannot overtake it. The notification has set out in any case.
func (c *conn) awaitNotification(ctx context.Context, call *call) {
	select {
	case <-call.sent: // mostly so when it was quick
		return
	default:
	}
	t := time.NewTimer(notificationWait)
	defer t.Stop()
	defer call.setSent()
	select {
	case <-call.sent:
	case <-t.C:
	case <-c.Context().Done():
	case <-ctx.Done():
	}
}

// run is the goroutine of one message: it carries the message from beginning to end.
func (c *conn) run(call *call) {
	fault := c.exchange(call)
	if fault == nil && call.method == "notifications/initialized" {
		c.listener.startListeningAndWait(c.currentSession())
	}
	call.setSent()
	if fault != nil && !c.endInitializeIfWrongTransport(call, fault) {
		c.fail(c.Context(), call, fault)
	}
	call.end()
	c.ledger.Lock()
	replaced := call.replacedSession
	c.ledger.Unlock()
	if replaced != nil {
		replaced.stop()
		c.deleteSession(replaced)
	}
}

// Close ends the session with a DELETE (LE11) and returns when every
// goroutine has ended. What is still in progress is cut off without an answer.
// The reason is told to nobody: HTTP has no place for it. It never returns an error.
func (c *conn) Close(error) error {
	c.Shutdown(func() {
		for _, s := range c.endSessions() {
			c.deleteSession(s)
		}
		c.target.Close()
	})
	return nil
}
