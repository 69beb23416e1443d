package sseclient

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	maxOneWay         = 64                    // how many notifications and responses may be on their way to the server at once
	aheadTimeout      = time.Second           // how long a message waits until the server has accepted the one ahead of it
	acceptTimeout     = 20 * time.Millisecond // how long a message still waits until the server has accepted the one ahead of it, once that was written
	oneWayTimeout     = time.Minute           // how long the server may take to accept a notification or a response
	lingerTimeout     = 2 * time.Second       // how long a POST may go on after its request was answered on the stream or given up, and how long the body of a reply is read that can be no answer
	initializeTimeout = time.Minute           // how long the answer to initialize may take, if nobody has to sign in for it (httpdial.TimeoutWithSignIn)
)

// conn is the Conn that Client.Dial returns. Its goroutines are the reconnector, which sees to
// it that there is a session; the reader of the event stream; and one per POST. All of
// them hand on what they have for the client themselves, see remoteconn.Base.Deliver.
//
// A message acquires a slot, then sendSlot, and then enters the ledger. sendSlot is a lock
// that may be held while waiting; the ledger's is not.
type conn struct {
	remoteconn.Base
	target *httpdial.Target // the server
	opts   Options          // those of the Client, with the defaults filled in
	log    hclog.Logger     // the Logger of opts

	requestSlots remoteconn.Slots // a slot for each request that has a goroutine
	oneWaySlots  remoteconn.Slots // a slot for each notification or response that has a goroutine
	sendSlot     remoteconn.Slots // a lock, with one slot: who has it may send the next message. Send holds it until awaitSent has returned
	refusing     sync.WaitGroup   // requests that are being refused: from admit until the error response is queued; handleOpenFailure waits for them before it ends the Conn

	ledger      remoteconn.Ledger[*call, *session] // the requests in progress; its lock guards state, too
	state       connState                          // the session, and what waits for one
	reconnector reconnector                        // gets sessions

	answersInBody atomic.Bool // the last answer came in the body of the reply to a POST, not on the stream
}

// newConn returns the Conn for the server target; opts have their defaults.
func newConn(target *httpdial.Target, opts Options) *conn {
	c := &conn{
		target: target, opts: opts, log: opts.Logger,
		// Twice MaxInFlight: a goroutine may linger a moment after its request.
		requestSlots: make(remoteconn.Slots, 2*opts.MaxInFlight),
		oneWaySlots:  make(remoteconn.Slots, maxOneWay),
		sendSlot:     make(remoteconn.Slots, 1),
	}
	c.reconnector = reconnector{c: c, retryNow: make(chan struct{}, 1)}
	c.Init()
	return c
}

// TrySend implements bridge.Conn. It takes nothing: each message waits for the acceptance of
// the one before.
func (c *conn) TrySend(jsonrpc.Message) bool { return false }

// Send sends m in a POST of its own. It keeps the order: no message sets out
// before the one ahead of it was accepted, or was written if acceptance takes
// long (servers of old accept a call by finishing it); none but a response
// before initialize was answered; and no cancellation before its request was
// accepted. Each of these waits has an end, because the message at hand may be
// what the server waits for.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := c.Err(ctx); err != nil {
		return err
	}
	call := newCall(c, m)
	slots := c.oneWaySlots
	if call.kind == jsonrpc.Request {
		slots = c.requestSlots
	}
	if err := slots.Acquire(ctx, &c.Base); err != nil {
		call.cancelPost()
		return err
	}
	result, err := c.admitInTurn(ctx, call)
	if err == nil && result.sendNow {
		defer c.sendSlot.Release()
		if !c.Go(func() { c.run(call); slots.Release() }) {
			return remoteconn.ErrClosed
		}
		c.awaitSent(ctx, call)
		return nil
	}
	slots.Release()
	if !result.leftToReconnector { // for a session, which the reconnector is getting
		call.cancelPost()
	}
	if result.answerWith != nil {
		c.log.Warn("request refused", "method", call.method, "reason", result.answerWith.Reason)
		_ = c.QueueErrorResponse(ctx, result.answerWith.Response(call.id))
		c.refusing.Done()
	}
	return err
}

// admitInTurn waits until nobody else is sending and InitializeGate is open, and calls
// admit. If the result is sendNow, the caller has sendSlot and must release it. The error is the one for Send: the
// message cannot be taken.
func (c *conn) admitInTurn(ctx context.Context, call *call) (admitResult, error) {
	for {
		if err := c.sendSlot.Acquire(ctx, &c.Base); err != nil {
			return admitResult{}, err
		}
		result := c.admit(call)
		if result.dropReason != "" {
			c.log.Debug("message dropped: "+result.dropReason, "method", call.method)
		}
		if result.sendNow {
			if result.sendAfter != nil {
				c.awaitAcceptance(ctx, result.sendAfter.accepted, nil, aheadTimeout)
			}
			return result, nil
		}
		c.sendSlot.Release()
		if result.retryAfter == nil {
			return result, result.err
		}
		if err := c.Wait(ctx, result.retryAfter); err != nil {
			return admitResult{}, err
		}
	}
}

// awaitSent waits until the next message may set out. The end of ctx ends only this wait:
// the message is on its way, so Send has taken it. An error would have the caller forget
// a request that the server has, and never cancel it.
func (c *conn) awaitSent(ctx context.Context, call *call) {
	written := call.written
	if call.kind == jsonrpc.Notification {
		written = nil // what comes next may depend on what it says
	}
	c.awaitAcceptance(ctx, call.accepted, written, aheadTimeout)
}

// awaitAcceptance waits until accepted is closed, but no longer than limit, and no longer
// than acceptTimeout once written is closed. A nil written is never closed.
func (c *conn) awaitAcceptance(ctx context.Context, accepted, written <-chan struct{}, limit time.Duration) {
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
			t.Reset(acceptTimeout)
			continue
		case <-accepted:
		case <-t.C:
		case <-ctx.Done():
		case <-c.Context().Done():
		}
		return
	}
}

// Close closes the event stream, which ends the session, and returns when
// every goroutine has ended. What is still in progress is cut off without an answer.
func (c *conn) Close(error) error {
	c.Shutdown(c.target.Close)
	return nil
}
