package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Exchange serves a client Conn that is one request long, as one POST of 2026-07-28 is: the
// request goes to server, and all that comes from server goes to client until the response has. A
// notification in place of the request is sent to server, and that is all.
// server must serve this request only, as a Mux's Conn does; it may be closed when the request
// is answered, and is the caller's to close in any case.
//
// All of it happens in the Send that client calls with the request: a request takes no
// goroutine. Nobody waits for more of the client, so the ctx of that Send, or Exchange's, must
// be done when the client has gone. Then, and when the client takes nothing more, the server
// gets notifications/cancelled and the client nothing. Only an open subscriptions/listen is
// ended with its result, in case ctx ended for another reason and the client still wants it.
//
// When the cause of ctx is ErrClosing the client is still there: a request that the server has
// taken may be answered within the ShutdownGrace, unless it is cancelled or the client ends. If
// it is not, it is answered with an error.
//
// Of o it uses PendingCalls, RequestTimeout, except for subscriptions/listen, TimedOut,
// ShutdownGrace, ShutdownGraceFor and Shutdown, KeepsRequests, and Dropped. The time runs from
// the moment the request is there, so it holds for a server that does not take the request, too.
// It returns nil once the request is answered or cancelled, else what went wrong; a request that
// fails with the server is answered with an error.
func Exchange(ctx context.Context, client, server Conn, o PumpOptions) error {
	x := &exchange{client: client, server: server, opts: o, ctx: ctx}
	defer func() {
		if x.endClientCtx != nil {
			x.endClientCtx()
		}
	}()
	err := client.Receive(ctx, x)
	switch {
	case x.hasRequest && x.inGrace:
		return x.relayInGrace(ctx)
	case x.hasRequest:
		return x.err
	case isOrderlyEnd(err):
		return nil
	}
	return fmt.Errorf("client: %w", err)
}

// TrySend implements Sink. It takes nothing: what an exchange does waits for the server.
func (x *exchange) TrySend(jsonrpc.Message) bool { return false }

// Send implements Sink: it does all of the exchange with the client's request, and then returns errExchanged, so that
// nothing more is received.
func (x *exchange) Send(ctx context.Context, request jsonrpc.Message) error {
	x.hasRequest, x.ctx, x.id, x.method, x.isListen = true, ctx, request.ID(), request.Method(), request.Method() == ownmsg.Listen
	if x.opts.RequestTimeout > 0 && !x.isListen {
		now := time.Now()
		x.deadline = now.Add(x.opts.RequestTimeout)
		x.latestDeadline = now.Add(min(x.opts.RequestTimeout, maxRenewableTimeout) * maxTimeoutFactor)
	}
	x.pendingEntry.canceller = x
	x.opts.PendingCalls.add(ctx, &x.pendingEntry, request.Method(), x.id)
	defer x.opts.PendingCalls.remove(&x.pendingEntry)
	x.err = x.serve(ctx, request)
	return errExchanged
}

// errExchanged is what a Sink of an exchange returns to end a Receive from which the exchange wants nothing more. For
// the client's Conn the request counts as refused (see Conn.Receive), although it was served: cancellationSink knows
// it when it comes again.
var errExchanged = errors.New("exchanged")

// serve hands the request to the server, and what comes back to the client. It returns what became of the exchange:
// nil when it was answered or cancelled, but also, with inGrace set, when relayInGrace has to go on with it.
func (x *exchange) serve(ctx context.Context, request jsonrpc.Message) error {
	err := x.submit(ctx, request)
	kind := request.Kind()
	if request.Size() > budget.UncountedBytes {
		x.opts.reportPassed(ctx, &request)
	}
	request = jsonrpc.Message{} // its bytes are the server's now
	switch {
	case kind != jsonrpc.Request:
		return err
	case err == nil:
		return x.run(ctx)
	case x.outcome.Load() == outcomeCancelled:
		return x.end(err)
	case ctx.Err() == nil && err != errTimeout && x.settle():
		return errors.Join(err, x.client.Send(ctx, jsonrpc.NewError(x.id, jsonrpc.CodeInternalError,
			"the server did not take the request: "+err.Error(), ownmsg.ServerEndedData)))
	case ctx.Err() == nil:
		return x.end(err)
	case !x.isListen && context.Cause(ctx) == ErrClosing:
		return x.end(errShutdown) // the ShutdownGrace is for what the server works on
	}
	return x.end(ctx.Err())
}

// submit sends the request to the server. The error is errTimeout if the server has not taken it by the deadline.
func (x *exchange) submit(ctx context.Context, m jsonrpc.Message) error {
	if ctx.Err() == nil && x.server.TrySend(m) {
		return nil
	}
	if x.deadline.IsZero() {
		return x.server.Send(ctx, m)
	}
	ctx, stop := context.WithDeadline(ctx, x.deadline)
	defer stop()
	err := x.server.Send(ctx, m)
	if err != nil && !time.Now().Before(x.deadline) {
		return errTimeout
	}
	return err
}

// maxRenewableTimeout is the longest RequestTimeout that can be multiplied by maxTimeoutFactor without overflow.
const maxRenewableTimeout = (1<<63 - 1) / maxTimeoutFactor

// exchange is one call of Exchange. It is the Sink of its client.
type exchange struct {
	// client has sent the request, server is to answer it
	client, server Conn
	opts           PumpOptions     // the options that Exchange was called with
	ctx            context.Context // the ctx of the client's Send with the request; before that, Exchange's
	id             jsonrpc.ID      // the id of the request
	method         string          // the method of the request
	isListen       bool            // the request is subscriptions/listen
	// deadline is when the answer is due; progress puts it off, but not beyond latestDeadline. Zero: there is none.
	deadline, latestDeadline time.Time

	clientCtx    context.Context // what clientContext returns; nil: it was not called yet
	endClientCtx func()          // ends clientCtx, and waits for what watches ctx for it; nil: there is no clientCtx yet

	pendingEntry pendingEntry // the request, in opts.PendingCalls
	outcome      atomic.Int32 // outcomeSettled or outcomeCancelled; 0: it is not decided
	hasRequest   bool         // the client has sent its request, or another message in the place of it
	inGrace      bool         // everything shuts down: relayInGrace is to go on
	err          error        // what serve has returned: what became of the exchange

	// answered: the client was sent the answer. Only fromServerSink sets it and answerErr, in the server's Receive,
	// and they are looked at after that.
	answered  bool
	answerErr error // the error with which the answer was sent to the client; nil: none
}

// What becomes of an exchange, which is decided once: the zero outcome says that it is open.
const (
	outcomeSettled   = iota + 1 // the exchange is not cancelled any more: it is answered, or ends for another reason
	outcomeCancelled            // cancelCall has cancelled the exchange
)

// settle decides that the exchange is not cancelled, so that its answer may be sent; false: cancelCall was first. In
// either case the call leaves opts.PendingCalls.
func (x *exchange) settle() bool {
	x.opts.PendingCalls.remove(&x.pendingEntry)
	return x.outcome.CompareAndSwap(0, outcomeSettled) || x.outcome.Load() == outcomeSettled
}

// cancelCall implements canceller: it cancels the request at the server, and closes the server's Conn, after which end
// answers the client. false: the exchange is settled, or was cancelled before.
func (x *exchange) cancelCall(jsonrpc.ID) bool {
	if !x.outcome.CompareAndSwap(0, outcomeCancelled) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownmsg.FinalSendTimeout)
	defer cancel()
	x.cancelAtServer(ctx, "cancelled on request")
	_ = x.server.Close(nil)
	return true
}

// Why an exchange ends before the answer.
var (
	errTimeout    = errors.New("timed out")           // the server has not answered, or not taken the request, by the deadline
	errClientGone = errors.New("the client has gone") // nobody waits for the answer any more
	errShutdown   = errors.New("shutting down")       // everything shuts down, and the answer has not come in time
)

// run relays what comes from the server until the exchange is over, and returns what became of it. If it gets no
// answer, it is ended (end). If everything shuts down, run sets inGrace instead and returns nil.
func (x *exchange) run(ctx context.Context) error {
	done, err := x.relayUntilDeadline(ctx)
	switch {
	case done:
		return err
	case ctx.Err() == nil, err == errClientGone, err == errTimeout:
		return x.end(err)
	case !x.isListen && context.Cause(ctx) == ErrClosing:
		x.inGrace = true
		return nil
	}
	return x.end(ctx.Err())
}

// relayUntilDeadline relays what comes from the server until there is nothing left to do (done; err is what became of
// it), or the deadline has passed (errTimeout), or the server's Receive has ended with err.
func (x *exchange) relayUntilDeadline(ctx context.Context) (done bool, err error) {
	if x.deadline.IsZero() {
		return x.relay(ctx)
	}
	for time.Now().Before(x.deadline) {
		round, stop := context.WithDeadline(ctx, x.deadline)
		done, err = x.relay(round)
		stop()
		if done || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return done, err
		}
	}
	return false, errTimeout
}

// relayInGrace goes on with an exchange for the ShutdownGrace: nobody takes new requests any more, but this one may be
// answered. Meanwhile it receives from the client, which may cancel it. It returns what became of the exchange.
func (x *exchange) relayInGrace(ctx context.Context) error {
	why := context.Cause(ctx)
	if x.opts.graceFor(why) <= 0 {
		return x.end(errShutdown)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		x.opts.awaitGrace(why, ctx.Done())
		cancel(errShutdown)
	})
	wg.Go(func() { cancel(x.awaitClientGone(ctx)) })
	done, err := x.relayUntilDeadline(ctx)
	switch {
	case done:
		return err
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return x.end(err)
}

// clientContext returns the context of what the client is sent before the answer. It is done with the request's; but
// when the bridge shuts down, only after the ShutdownGrace and the time that a last message may take. One that is just
// being written must not be broken off, since nothing could be written after it.
func (x *exchange) clientContext() context.Context {
	if x.clientCtx != nil {
		return x.clientCtx
	}
	request, watched := x.ctx, make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(request))
	unwatch := context.AfterFunc(request, func() {
		defer close(watched)
		defer cancel()
		if why := context.Cause(request); why == ErrClosing {
			x.opts.awaitGrace(why, ctx.Done())
			last, stop := context.WithTimeout(ctx, ownmsg.FinalSendTimeout)
			defer stop()
			<-last.Done()
		}
	})
	x.clientCtx = ctx
	x.endClientCtx = func() {
		cancel()
		if !unwatch() {
			<-watched
		}
	}
	return ctx
}

// awaitClientGone waits until the client cancels the request or its Conn ends, or ctx is done. It returns
// errClientGone.
func (x *exchange) awaitClientGone(ctx context.Context) error {
	_ = x.client.Receive(ctx, (*cancellationSink)(x))
	return errClientGone
}

// cancellationSink is an exchange as the Sink that waits, in the ShutdownGrace, for the client to cancel the request.
type cancellationSink exchange

// TrySend implements Sink: it takes nothing, so that Send is called.
func (w *cancellationSink) TrySend(jsonrpc.Message) bool { return false }

// Send implements Sink. It returns errClientGone for the cancellation of the request, and drops all else.
func (w *cancellationSink) Send(_ context.Context, m jsonrpc.Message) error {
	x := (*exchange)(w)
	switch {
	case m.Kind() == jsonrpc.Request && m.ID() == x.id: // the request again, after errExchanged
	case m.Method() == ownmsg.Cancelled && m.CancelledID().Equivalent(x.id):
		return errClientGone
	default:
		x.reportDropped(m, "is no part of the exchange")
	}
	return nil
}

// relay passes on what comes from the server until ctx is done or the client was answered. done says that it was; err
// is then the error of that, otherwise why the Receive has ended.
func (x *exchange) relay(ctx context.Context) (done bool, err error) {
	err = x.server.Receive(ctx, (*fromServerSink)(x))
	if x.answered {
		return true, x.answerErr
	}
	return false, err
}

// fromServerSink is an exchange as the Sink of what comes from its server.
type fromServerSink exchange

// TrySend implements Sink. It takes the answer, if the client takes that at once, in the goroutine that has brought
// it. It closes the server's Conn then, of which nothing more is wanted: that ends the Receive. All else it leaves to Send.
func (a *fromServerSink) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Response || m.ID() != a.id || a.answered || !(*exchange)(a).settle() || !a.client.TrySend(m.WithBurst(nil)) { // the Close below may wait
		return false
	}
	a.answered = true
	_ = a.server.Close(nil)
	return true
}

// Send implements Sink: it passes the answer to the exchange's request, and notifications, on to the client, and answers a
// request of the server itself (ST10). It returns an error, which ends the Receive, once there is nothing left to do.
func (a *fromServerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	x := (*exchange)(a)
	switch m.Kind() {
	case jsonrpc.Response:
		if !m.ID().Equivalent(x.id) {
			x.reportDropped(m, "answers no request that is in progress")
			return nil
		}
		if !x.settle() {
			x.reportDropped(m, "the call was cancelled")
			return errExchanged
		}
		if m.ID() != x.id {
			m = m.WithID(x.id)
		}
		x.answered = true
		x.answerErr = x.client.Send(context.WithoutCancel(x.ctx), m) // also if everything shuts down just now
		return errExchanged
	case jsonrpc.Notification:
		if m.Method() == ownmsg.Progress && !x.deadline.IsZero() { // there is another round
			x.deadline = time.Now().Add(x.opts.RequestTimeout)
			if x.deadline.After(x.latestDeadline) {
				x.deadline = x.latestDeadline
			}
		}
		clientCtx := x.clientContext()
		if err := x.client.Send(clientCtx, m); err != nil {
			x.reportDropped(m, "the client did not take it")
			if clientCtx.Err() == nil {
				return errClientGone
			}
		}
	case jsonrpc.Request: // ST10
		if err := x.server.Send(ctx, era.AnswerServerRequest(m)); err != nil {
			x.reportDropped(m, "the server did not take the answer")
		}
	}
	return nil
}

// end ends an exchange that gets no answer from the server, for the reason why: it cancels the request at the server,
// or answers the client with an error (a subscription: with its result), or both. It returns what became of the
// exchange.
func (x *exchange) end(why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), ownmsg.FinalSendTimeout)
	defer cancel()
	switch {
	case !x.settle() && x.isListen:
		result, _ := ownmsg.ListenEnd(x.id) // the end of the stream follows
		return x.client.Send(ctx, result)
	case x.outcome.Load() == outcomeCancelled:
		return x.client.Send(ctx, jsonrpc.NewError(x.id, jsonrpc.CodeInternalError, ownmsg.CancelledText, ownmsg.CancelledData))
	case why == errTimeout:
		x.cancelAtServer(ctx, "timed out")
		if x.opts.TimedOut != nil {
			x.opts.TimedOut(PendingCall{Ctx: x.ctx, Method: x.method, ID: x.id, Since: x.latestDeadline.Add(-min(x.opts.RequestTimeout, maxRenewableTimeout) * maxTimeoutFactor)})
		}
		within := x.opts.RequestTimeout
		if !time.Now().Before(x.latestDeadline) {
			within *= maxTimeoutFactor
		}
		text := fmt.Sprintf("the server did not answer within %v", within)
		return x.client.Send(ctx, jsonrpc.NewError(x.id, jsonrpc.CodeInternalError, text, ownmsg.TimedOutData))
	case why == errShutdown:
		x.cancelAtServer(ctx, "shutting down")
		return x.client.Send(ctx, jsonrpc.NewError(x.id, jsonrpc.CodeInternalError, ErrClosing.Error(), ownmsg.ShuttingDownData))
	case why == errClientGone:
		x.cancelAtServer(ctx, "the client has gone")
		return nil
	case why == context.Canceled, why == context.DeadlineExceeded: // ctx
		x.cancelAtServer(ctx, "the client has gone")
		if x.isListen {
			result, _ := ownmsg.ListenEnd(x.id)
			_ = x.client.Send(ctx, result)
		}
		return nil
	}
	m, _ := ownmsg.ListenEnd(x.id)
	if !x.isListen {
		text, data := ownmsg.Ending(why)
		m = jsonrpc.NewError(x.id, jsonrpc.CodeInternalError, text, data)
	}
	return errors.Join(why, x.client.Send(ctx, m))
}

// cancelAtServer tells the server that nobody waits for the answer any more; why is a text.
func (x *exchange) cancelAtServer(ctx context.Context, why string) {
	m := ownmsg.Cancellation(x.id, why)
	if err := x.server.Send(ctx, m); err != nil {
		x.reportDropped(m, "the server did not take it")
	}
}

// reportDropped tells PumpOptions.Dropped that m reaches nobody, for this reason.
func (x *exchange) reportDropped(m jsonrpc.Message, reason string) {
	if x.opts.Dropped != nil {
		x.opts.Dropped(m, reason)
	}
}
