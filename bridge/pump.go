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

// DefaultShutdownGrace is how long a Pump waits for answers that are still owed once
// its context has ended.
const DefaultShutdownGrace = 5 * time.Second

// DefaultDrainTimeout is how long a Pump waits for answers that are still owed once
// the client has said that it sends nothing more.
const DefaultDrainTimeout = 30 * time.Second

// drainNoticeAfter is how long answers are waited for before OnClientEOF is told.
const drainNoticeAfter = time.Second

// maxTimeoutFactor is how many times RequestTimeout a request may take at most when
// progress goes on and on.
const maxTimeoutFactor = 10

// maxUnanswered is how many requests of each side may wait for the other's
// answers. A side that answers none must not make the ledger grow for ever.
const maxUnanswered = 10_000

// PumpOptions tune a Pump. The zero value works.
type PumpOptions struct {
	// DrainTimeout bounds the wait for owed answers after the client's EOF (ST8).
	// 0 means DefaultDrainTimeout, negative means not to wait.
	DrainTimeout time.Duration

	// ShutdownGrace bounds the wait for owed answers, and for a server that takes
	// nothing, after ctx is done. 0 means DefaultShutdownGrace, negative means not to wait.
	ShutdownGrace time.Duration

	// ShutdownGraceFor, if not nil, is asked for the ShutdownGrace when ctx is done: why it is
	// done (context.Cause) may make a difference.
	ShutdownGraceFor func(why error) time.Duration

	// Shutdown, if not nil, is closed when the program is about to end. From then
	// on no wait lasts longer than ShutdownGrace, also one that ShutdownGraceFor had allowed more.
	Shutdown <-chan struct{}

	// RequestTimeout is how long the server may stay silent on a request
	// before it is cancelled and answered with an error (J8). Progress on the
	// request starts it anew, but no request lasts longer than ten times as
	// long. 0 means forever.
	RequestTimeout time.Duration

	// OnClientEOF is told, once, that the client sends nothing more, by its end or by ctx's, and
	// that answers are still waited for a second later: how many the server owes, and how many
	// the client has not taken. nil is fine.
	OnClientEOF func(owed, untaken int)

	// Budget is the memory for what is kept of the client's requests until they
	// are answered; the Party of Pump's ctx is who holds it. A request for which
	// there is none left is answered with an error (data.reason "busy"). nil: no limit.
	Budget *budget.Budget

	// PendingCalls, if not nil, is where the requests of both sides are until they are answered.
	PendingCalls *PendingCalls

	// TimedOut, if not nil, is told of each request that RequestTimeout has ended. Calls may
	// overlap.
	TimedOut func(PendingCall)

	// KeepsRequests, if not nil, says whether the server's side keeps requests until they are
	// answered, as one does that translates them: it may have to send them again.
	KeepsRequests func() bool

	// Dropped is told of each message that reached nobody, and why. The
	// reason never holds content. It may be called concurrently; nil is fine.
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
//     (bounded by DrainTimeout), then returns nil.
//   - When ctx is done it takes nothing more from the client, waits likewise
//     (bounded by ShutdownGrace), answers what is still owed with an error, and
//     returns nil.
//   - When the server ends, every request it owes is answered with a JSON-RPC
//     error that carries the server's error, and that error is returned. If it owes
//     nothing, and the client or ctx has ended too, Pump returns nil.
//   - When the client is gone (any error but io.EOF), the server is told to
//     cancel what it owes, and the error is returned. A Pump that is blocked
//     in a Send to the server learns of it when the client's Conn ends the ctx of
//     that (see StallWatch), or by ctx.
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
// the spelling that was asked with; so do progress tokens and cancellations.
func Pump(ctx context.Context, client, server Conn, opts PumpOptions) error {
	return newPump(ctx, client, server, &opts).run(ctx)
}

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

type pump struct {
	client, server  Conn
	opts            PumpOptions
	ctx             context.Context         // of the conversation; done when it is over
	cancel          context.CancelCauseFunc // ends ctx, with the reason as its cause
	clientDirection sync.WaitGroup          // the goroutine of copyFromClient and finishAfterClientEnd
	clientEndErr    error                   // how copyFromClient has ended
	clientRequests  ledger                  // the client's, to which the server owes answers
	serverRequests  ledger                  // the server's, to which the client owes answers
	graceTimers     sync.WaitGroup          // graceContext's waits for the grace to be over

	// serverStalled is true after the server did not take a refusal in time: who floods
	// us with requests and does not read must not make its own output wait
	// for each of them. It is false again once the server has taken something.
	serverStalled atomic.Bool

	// listensEnded is true once a subscription (subscriptions/listen) was ended that its server may not
	// have ended yet: what the server still says about such a one reaches nobody.
	listensEnded atomic.Bool

	serverEndText string // what clients are told of the server's end; set before clientRequests is closed
	serverEndData []byte // the data that goes with it

	clientReceive clientReceive // from the client

	sendingToClient chan struct{} // holds an element while a Send to the client goes on
}

// errServerEnded says that the server has ended. Pump returns it if the server has said no more
// than io.EOF.
var errServerEnded = errors.New("the server has ended the conversation")

// errOver is the cause of a Pump's end when nobody has given another.
var errOver = errors.New("conversation over")

// errStopped says that the client's direction ended because Pump's ctx is done.
var errStopped = errors.New("stopped")

// run is Pump. What is done before and after Receive is in functions of its own: this goroutine
// should need little stack, as there are as many as there are sessions.
func (p *pump) run(parent context.Context) error {
	defer p.begin(parent)()
	toClient := &toClientSink{pump: p}
	return p.finishAfterServerEnd(toClient, p.server.Receive(p.ctx, toClient))
}

// begin starts the client's direction, and all that ends the conversation. end waits for what
// was started, but for the client's direction: finishAfterServerEnd does so.
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

// finishAfterServerEnd goes on when nothing more comes from the server. It returns how the conversation has
// ended.
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

// isOrderlyEnd reports whether the client's direction ended in an orderly way.
func isOrderlyEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, errStopped) || errors.Is(err, errHungUp) || errors.Is(err, context.Canceled)
}

// graceContext returns a context that ends one grace after parent ends; stop ends it
// at once.
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

// graceFor returns the ShutdownGrace as it is now for a ctx that is done for this reason.
func (o PumpOptions) graceFor(why error) time.Duration {
	if o.ShutdownGraceFor != nil {
		return o.ShutdownGraceFor(why)
	}
	return orDefault(o.ShutdownGrace, DefaultShutdownGrace)
}

// awaitGrace waits for the grace after the end of a ctx whose cause is why: as long as graceFor
// says, but no longer than ShutdownGrace once Shutdown is closed. It returns early when done is
// closed.
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

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}
