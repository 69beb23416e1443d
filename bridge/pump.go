package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultShutdownGrace is how long Pump and Exchange wait for answers that are still owed once
// their ctx has ended, unless PumpOptions.ShutdownGrace says otherwise.
const DefaultShutdownGrace = 5 * time.Second

// DefaultDrainTimeout is how long a Pump waits for answers that are still owed once the client
// has said that it sends nothing more, unless PumpOptions.DrainTimeout says otherwise.
const DefaultDrainTimeout = 30 * time.Second

// drainNoticeAfter is how long a Pump waits for answers after the client's end, or that of its ctx, before it tells
// OnClientEOF.
const drainNoticeAfter = time.Second

// maxTimeoutFactor is how many times RequestTimeout a request may last at most when progress renews its time-out again
// and again.
const maxTimeoutFactor = 10

// maxUnanswered is how many requests of each side of a Pump may wait for the other's answers; one more is refused with an
// error. A side that answers none must not make the ledger grow for ever.
const maxUnanswered = 10_000

// PumpOptions tune a Pump. The zero value works.
type PumpOptions struct {
	// DrainTimeout bounds the wait for owed answers after the client's EOF (ST8).
	// 0 means DefaultDrainTimeout, negative means not to wait.
	DrainTimeout time.Duration

	// ShutdownGrace bounds the wait for owed answers, and for a server that takes nothing, after ctx is done, unless
	// ShutdownGraceFor says for how long. 0 means DefaultShutdownGrace, negative means not to wait.
	ShutdownGrace time.Duration

	// ShutdownGraceFor, if not nil, is asked when ctx is done how long to wait, in the place of ShutdownGrace; why is
	// the cause of that (context.Cause). 0 or negative means not to wait.
	ShutdownGraceFor func(why error) time.Duration

	// Shutdown, if not nil, is closed when the program is about to end. From then
	// on no wait lasts longer than ShutdownGrace, also one that ShutdownGraceFor had allowed more.
	Shutdown <-chan struct{}

	// RequestTimeout is how long the server may stay silent on a request
	// before it is cancelled there and answered with an error (J8); initialize
	// is answered only, as it cannot be cancelled. Progress on the request
	// starts the time anew, but no request lasts longer than ten times as long.
	// 0 or negative means forever. subscriptions/listen has no such time-out.
	RequestTimeout time.Duration

	// OnClientEOF is told once, a second after the client has sent its last or ctx is done, if answers are still
	// waited for: owed is how many the server owes, untaken how many the client has not taken. nil: nobody is told.
	OnClientEOF func(owed, untaken int)

	// Budget is the memory for what is kept of the client's requests until they
	// are answered, of initialize until Pump returns; the Party of Pump's ctx is
	// who holds it. A request for which there is none left is answered with an
	// error (data.reason "busy"). nil: no limit.
	Budget *budget.Budget

	PendingCalls *PendingCalls // PendingCalls, if not nil, has the requests of both sides while they are not answered.

	// TimedOut, if not nil, is told of each request that RequestTimeout has ended, without its Note. It may be called
	// concurrently.
	TimedOut func(PendingCall)

	// KeepsRequests says whether the server's side keeps requests until they are answered,
	// as one does that translates them: it may have to send them again. nil: it does not.
	KeepsRequests func() bool

	// Dropped is told of each message that reached nobody, and why. The reason never holds content. It may be called
	// concurrently; nil: nobody is told.
	Dropped func(m jsonrpc.Message, reason string)
}

// Pump copies messages between one client and one server, byte for byte and
// in order, until the conversation is over. It is two Receives, each of which has the
// other Conn as its Sink, with the ledgers between them; one of them has a goroutine of
// its own. It returns when everything it started has ended; it closes neither Conn.
//
// It keeps ledgers of who owes whom an answer, so that no request is left
// hanging:
//
//   - After the client's io.EOF it goes on until the server owes nothing
//     (bounded by DrainTimeout), and then returns nil. What is owed even then is
//     cancelled at the server and answered with an error.
//   - When ctx is done it takes nothing more from the client, and does the same
//     (bounded by ShutdownGrace).
//   - When the server ends, every request it owes is answered with a JSON-RPC
//     error that carries the server's error, and that error is returned (after
//     io.EOF, one that says that the server has ended). If it owes nothing, and
//     the client or ctx has ended too, Pump returns nil.
//   - When the client is gone (any error but io.EOF), the server is told to
//     cancel what it owes, and the error is returned. A Pump that is blocked
//     in a Send to the server learns of it when the client's Conn ends the ctx of
//     that Send (see StallWatch, whose giving up is no error here), or by ctx.
//   - A subscriptions/listen of 2026-07-28 is not waited for: when any of this
//     happens it is cancelled at the server, and ends with its result for a
//     client that is still there (ST13). It has no RequestTimeout.
//   - If ctx belongs to an admission.Slot, the Slot is told what the server owes,
//     so that only a session with nothing but subscriptions open is ended for
//     another party.
//   - When the server's Conn ends with ErrSlow, because the client leaves too much
//     unread, nobody waits for the client any more: ErrSlow is returned (D.2).
//
// A response that nobody waits for is dropped (J12), except that an id which
// is the same JSON value in another spelling finds its request and gets back
// the spelling that was asked with; so do progress tokens and cancellations. A
// request with the id of an earlier one, to which the server may still answer, has
// another id at the server.
func Pump(ctx context.Context, client, server Conn, opts PumpOptions) error {
	return newPump(ctx, client, server, &opts).run(ctx)
}

// newPump returns a Pump between a client and its server, which run starts. It takes a copy of opts.
func newPump(ctx context.Context, client, server Conn, opts *PumpOptions) *pump {
	p := &pump{client: client, server: server, opts: *opts}
	p.sendingToClient = make(chan struct{}, 1)
	p.clientRequests.init(maxUnanswered)
	p.serverRequests.init(maxUnanswered)
	if opts.Budget != nil {
		p.clientRequests.budgetShare = opts.Budget.Share(identity.Party(ctx))
	}
	return p
}

// pump is one call of Pump.
type pump struct {
	// the two sides between which messages are copied
	client, server  Conn
	opts            PumpOptions             // the options that Pump was called with
	ctx             context.Context         // the context of the conversation, which goes on for a while after Pump's ctx; done when it is over
	cancel          context.CancelCauseFunc // ends ctx, with the reason as its cause
	clientDirection sync.WaitGroup          // waits for the goroutine that copies from the client
	clientEndErr    error                   // how copyFromClient has ended; to be read only after clientDirection.Wait
	clientRequests  ledger                  // the client's requests, to which the server owes answers
	serverRequests  ledger                  // the server's requests, to which the client owes answers
	graceTimers     sync.WaitGroup          // waits for what graceContext has started

	// serverStalled is true after the server did not take an answer of the bridge's own in time: who floods us with
	// requests and does not read must not make its own output wait for each of them. It is false again once the server
	// has taken a message of the client.
	serverStalled atomic.Bool

	// listensEnded is true once a subscription (subscriptions/listen) was ended that its server may not
	// have ended yet: what the server still says about such a one reaches nobody.
	listensEnded atomic.Bool

	serverEndText string // what clients' requests are answered with after the server's end; set before clientRequests is closed
	serverEndData []byte // the data of the error with which requests are answered after the server's end

	clientReceive clientReceive // ends the Receive from the client

	sendingToClient chan struct{} // holds an element while the Send of a server's message to the client goes on
}

// errServerEnded is why nothing more is taken from the client once the server has ended. Pump returns it if the server
// has ended with io.EOF.
var errServerEnded = errors.New("the server has ended the conversation")

// errOver is the cause with which a pump's ctx ends when nobody has given another.
var errOver = errors.New("conversation over")

// errStopped is why nothing more is taken from the client once Pump's ctx is done.
var errStopped = errors.New("stopped")

// run does what Pump says; parent is Pump's ctx. What is done before and after Receive is in functions of its own:
// this goroutine should need little stack, as there are as many as there are sessions.
func (p *pump) run(parent context.Context) error {
	defer p.begin(parent)()
	toClient := &toClientSink{pump: p}
	return p.finishAfterServerEnd(toClient, p.server.Receive(p.ctx, toClient))
}

// begin starts the goroutine of the client's direction, and all that may end the conversation. end is to be called
// last: it ends and waits for what was started, but for that goroutine, for which finishAfterServerEnd waits.
func (p *pump) begin(parent context.Context) (end func()) {
	// The copying goes on for a while after parent is done, so it has a
	// context of its own; the cause tells the directions why they stop.
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(parent))
	p.clientRequests.pendingCalls, p.clientRequests.ctx, p.clientRequests.canceller = p.opts.PendingCalls, p.ctx, p
	p.serverRequests.pendingCalls, p.serverRequests.ctx, p.serverRequests.byServer = p.opts.PendingCalls, p.ctx, true
	unwatch, watched := admission.ReportBusy(parent, p.clientRequests.busyState)
	if watched {
		p.clientRequests.trackQuietSince()
	}
	graceCtx, stop := p.graceContext(p.ctx, parent)
	p.clientReceive.init(graceCtx)
	unstop := context.AfterFunc(parent, func() { p.clientReceive.stop(errStopped) })
	p.clientDirection.Go(func() {
		if p.clientEndErr = p.copyFromClient(graceCtx); p.clientEndErr == errServerEnded {
			return // what is owed is being answered
		}
		p.finishAfterClientEnd(p.ctx, graceCtx, p.clientEndErr)
		if isOrderlyEnd(p.clientEndErr) && p.clientEndErr != errHungUp {
			p.awaitClientSend()
		}
		p.cancel(errOver)
	})
	return func() {
		unstop()
		p.clientReceive.cancel(nil)
		stop()
		unwatch()
		p.cancel(nil)
		p.graceTimers.Wait()
		p.clientRequests.waitForTimers()
		p.clientRequests.budgetShare.ReleaseAll()
	}
}

// finishAfterServerEnd is called when the server's Receive has returned serverErr, because the server has ended or the
// conversation is over. It answers what the server owes, waits for the client's direction, and returns what Pump
// returns. It is not inlined into run, whose goroutine should need little stack.
//
//go:noinline
func (p *pump) finishAfterServerEnd(toClient *toClientSink, serverErr error) error {
	serverEnded, owed := context.Cause(p.ctx) == nil, true
	switch {
	case serverEnded && errors.Is(serverErr, ErrSlow):
		p.cancel(ErrSlow)
	case serverEnded:
		// First, nothing more is taken. What the client sends once it knows
		// is for its transport to refuse: no server has seen it.
		p.clientReceive.stop(errServerEnded)
		toClient.sendLastOffered(p.ctx)
		owed = p.failOwedRequests(p.ctx, serverErr)
	}
	p.cancel(errOver)
	p.clientDirection.Wait()
	switch {
	case serverEnded && !owed && isOrderlyEnd(p.clientEndErr):
		return nil // which of the two was seen to end first is chance
	case serverEnded && errors.Is(serverErr, io.EOF):
		return errServerEnded
	case serverEnded:
		return serverErr
	case p.clientEndErr != nil && !isOrderlyEnd(p.clientEndErr):
		return fmt.Errorf("client: %w", p.clientEndErr)
	}
	return nil
}

// isOrderlyEnd reports whether err, with which the client's direction has ended, leaves a client that may still read:
// its end of input, a stop by ctx, or a StallWatch that has given up (errHungUp).
func isOrderlyEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errStopped) || errors.Is(err, errHungUp) || errors.Is(err, context.Canceled)
}

// graceContext returns a context below ctx that ends one grace (awaitGrace) after parent has ended; stop ends it at
// once.
func (p *pump) graceContext(ctx, parent context.Context) (graceCtx context.Context, stop func()) {
	graceCtx, cancel := context.WithCancel(ctx)
	p.graceTimers.Add(1)
	unused := context.AfterFunc(parent, func() {
		defer p.graceTimers.Done()
		defer cancel()
		p.opts.awaitGrace(context.Cause(parent), graceCtx.Done())
	})
	return graceCtx, func() {
		if unused() {
			p.graceTimers.Done()
		}
		cancel()
	}
}

// graceFor returns how long to wait after a ctx has ended with the cause why: ShutdownGrace, or what ShutdownGraceFor
// says. 0 or negative: not at all.
func (o PumpOptions) graceFor(why error) time.Duration {
	if o.ShutdownGraceFor != nil {
		return o.ShutdownGraceFor(why)
	}
	return orDefault(o.ShutdownGrace, DefaultShutdownGrace)
}

// awaitGrace waits for as long as graceFor says after a ctx has ended with the cause why; no longer than ShutdownGrace
// from when Shutdown is closed. It returns early when done is closed.
func (o PumpOptions) awaitGrace(why error, done <-chan struct{}) {
	d := o.graceFor(why)
	if d <= 0 {
		return
	}
	end := time.Now().Add(d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return
	case <-done:
		return
	case <-o.Shutdown:
		t.Reset(min(time.Until(end), orDefault(o.ShutdownGrace, DefaultShutdownGrace)))
	}
	select {
	case <-t.C:
	case <-done:
	}
}

// orDefault returns d, or byDefault if d is 0.
func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
