package streamhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

var (
	errClientGone = errors.New("the client has hung up")                    // why nothing can be sent to an exchange any more: the client has hung up, or takes nothing
	errRevoked    = errors.New("the token of the request has been revoked") // why nothing can be sent to an exchange any more: its token was revoked or, of a subscription, has expired
	errAnswered   = errors.New("the request has been answered")             // the error of exchange.Send after the answer, or after the exchange has ended without one
)

// exchange is one POST of 2026-07-28: a bridge.Conn on which the client sends one request.
// Receive hands on the request, in the goroutine of net/http; then, if the client is lost
// (clientLostCause), its cancellation (MI15); then it returns io.EOF. Send writes to the reply at
// once, in the caller's goroutine. The reply is JSON if the answer comes first and soon, and an SSE
// stream otherwise (MI13); the result of a subscription is always in a stream (MI21).
//
// Order of locks: mu, then reply.mu or timerMu. mu is held while the reply is written, so
// that what is sent is written in order; timerMu and reply.mu are not.
type exchange struct {
	h          *Handler                // the Handler that serves the request
	r          *http.Request           // the POST
	ctx        context.Context         // done when the client is lost, the Handler is being closed, or the exchange is over: its cause tells which
	cancel     context.CancelCauseFunc // ends ctx
	handlerCtx identity.PartyContext   // the ctx of the bridge.Handler: ctx, and the party
	party      atomic.Pointer[string]  // the party of the client; nil: Party was not called, which finds it out
	id         jsonrpc.ID              // the id of the request
	method     string                  // the method of the request

	m                jsonrpc.Message // the request, for Receive; zero: Receive has handed it on
	cancellationSent bool            // Receive has handed on the cancellation of the request

	mu    sync.Mutex  // held while the reply is being written; guards the fields up to ended
	reply reply       // the reply to the POST
	out   *sse.Writer // what writes a stream, or a long JSON reply; nil as long as neither has begun; set under both mu and timerMu
	ended bool        // the request is answered, or never will be; set under both mu and timerMu

	timerMu sync.Mutex       // guards what follows; never held during a write
	began   time.Time        // when the Handler began to serve the request
	timer   *lazytimer.Timer // calls onTimer; nil: it was not set yet
	unwatch func() bool      // ends the watch over the client; nil: there is none yet
	done    chan struct{}    // closed when ended is set; nil: nobody has asked for it
}

// newExchange returns the exchange for the request m of a POST. share is what the POST's body holds
// of the budget: most of it is given back as soon as the server has its bytes.
func newExchange(h *Handler, w http.ResponseWriter, r *http.Request, m jsonrpc.Message, share *httpserve.BodyMemory) *exchange {
	e := &exchange{h: h, r: r, id: m.ID(), method: m.Method(), m: m}
	e.reply.ResponseWriter = w
	ctx := identity.WithPrincipal(context.WithoutCancel(r.Context()), principal(r))
	if share.HoldsBudget() {
		ctx = bridge.WithPassed(ctx, func(kept int) {
			e.m = jsonrpc.Message{} // its bytes are the server's now
			share.ShrinkTo(kept)
		})
	}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	e.handlerCtx = identity.PartyContext{Context: e.ctx, Client: e}
	return e
}

// Party returns the party of the client, for identity.PartyContext. It may be called concurrently.
func (e *exchange) Party() string {
	party := e.party.Load()
	if party == nil { // most never need it
		name := e.h.opts.Guard.Party(e.r)
		party = &name
		e.party.Store(party)
	}
	return *party
}

// watch sees to it that ctx is done when the client hangs up. exchanges.watchAll calls it, and not newExchange: most
// requests are answered before it would be worth it.
func (e *exchange) watch() {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	if e.unwatch == nil && !e.ended {
		e.unwatch = context.AfterFunc(e.r.Context(), func() { e.cancel(errClientGone) })
	}
}

// isOver reports whether the request is answered, or never will be.
func (e *exchange) isOver() bool {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	return e.ended
}

// answered returns a channel that is closed when the request is answered, or never will be.
func (e *exchange) answered() <-chan struct{} {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.ended {
			close(e.done)
		}
	}
	return e.done
}

// refuse answers the request with refusal, in the server's place, unless the client is lost.
func (e *exchange) refuse(refusal *era.Refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.clientLostCause() == nil {
		_ = e.answer(e.r.Context(), refusal.Response(e.id))
	}
}

// scheduleCommit sets the timer that makes the reply a stream after ModernCommitAfter, unless it is
// one by then or is complete.
func (e *exchange) scheduleCommit() {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	if e.timer == nil && !e.ended {
		e.setTimer(e.began.Add(e.h.opts.ModernCommitAfter))
	}
}

// scheduleKeepAlive sets the timer that writes a keep-alive comment when the stream has been silent
// for too long from now on, unless the request is answered before.
func (e *exchange) scheduleKeepAlive() {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	if !e.ended {
		e.setKeepAliveTimer()
	}
}

// setTimer has onTimer called at this time. The caller holds timerMu.
func (e *exchange) setTimer(at time.Time) {
	if e.timer == nil {
		e.timer = &lazytimer.Timer{Do: e.onTimer}
	}
	e.timer.Set(at)
}

// setKeepAliveTimer has onTimer called after HandlerOptions.KeepAlive, or not at all if that is
// negative. The caller holds timerMu.
func (e *exchange) setKeepAliveTimer() {
	switch every := e.h.opts.KeepAlive; {
	case every > 0:
		e.setTimer(time.Now().Add(every))
	case e.timer != nil:
		e.timer.Clear()
	}
}

// onTimer begins the stream if there is none yet, or else writes a keep-alive comment to it. While somebody else writes the
// reply, it only has itself called again (resetTimer).
func (e *exchange) onTimer() {
	if !e.mu.TryLock() { // somebody writes a message, or drops one
		e.resetTimer()
		return
	}
	defer e.mu.Unlock()
	if e.ended || e.reply.beginWrite(e.r.Context()) != nil {
		return
	}
	defer e.reply.endWrite()
	if e.out == nil {
		e.commit()
	} else {
		e.out.Comment("keep-alive")
	}
	_ = e.flush()
}

// commitRetry is how long exchange.onTimer waits before it tries again to begin the stream, if
// somebody else was writing the reply.
const commitRetry = 10 * time.Millisecond

// resetTimer has onTimer called again: after commitRetry if the reply is still to begin, otherwise
// when the stream has been silent for too long.
func (e *exchange) resetTimer() {
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	switch {
	case e.ended:
	case e.out == nil:
		e.setTimer(time.Now().Add(commitRetry))
	default:
		e.setKeepAliveTimer()
	}
}

// clientLostCause returns why the client gets nothing any more: it has hung up, does not take what is
// written, or its token is revoked; nil: the client is there. That the bridge shuts down is no such
// cause. If the client has hung up, clientLostCause also ends e.ctx.
func (e *exchange) clientLostCause() error {
	if e.r.Context().Err() != nil {
		e.cancel(errClientGone)
		return errClientGone
	}
	if err := context.Cause(e.ctx); err != nil && err != bridge.ErrClosing {
		return err
	}
	return nil
}

// Receive implements bridge.Conn. It hands on the request, once, and returns io.EOF when the
// request is answered. If the client hangs up or its token is revoked before that, it hands
// on a cancellation and then returns io.EOF.
func (e *exchange) Receive(ctx context.Context, sink bridge.Sink) error {
	if e.isOver() {
		return io.EOF
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.m.Kind() != jsonrpc.Invalid {
		// The sink may do in Send all that there is to do, so nothing here keeps
		// the bytes of the request for as long as that takes.
		if err := sink.Send(ctx, e.m); err != nil {
			return err
		}
		e.m = jsonrpc.Message{}
		if e.isOver() { // mostly so
			return io.EOF
		}
	}
	return e.awaitEnd(ctx, sink)
}

// awaitEnd waits, for Receive, until the request is answered, and returns io.EOF; if the client is lost
// before, it hands on the cancellation of the request.
func (e *exchange) awaitEnd(ctx context.Context, sink bridge.Sink) error {
	changed, done := e.ctx.Done(), e.answered()
	for {
		select {
		case <-done:
			return io.EOF
		default:
		}
		if e.clientLostCause() != nil {
			return e.sendCancellation(ctx, sink)
		}
		if e.ctx.Err() != nil {
			changed = nil // the bridge is shutting down, but the client is there
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case <-done:
		case <-changed:
		case <-e.r.Context().Done():
		case <-ctx.Done():
		}
	}
}

// sendCancellation hands on the cancellation of the request, once. It returns io.EOF, or the error of sink.
func (e *exchange) sendCancellation(ctx context.Context, sink bridge.Sink) error {
	if !e.cancellationSent {
		err := sink.Send(ctx, jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+e.id.String()+`}`)))
		if err != nil {
			return err
		}
		e.cancellationSent = true
	}
	return io.EOF
}

// Send writes one message of the server to the client. The answer to the request ends the
// exchange, and so does a cancellation of the request by the server, which is not written.
// What a client must not get here is dropped, and Send returns nil: requests of the server
// (rule MI14), answers to other requests, and notifications that are known to belong to no
// request.
func (e *exchange) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !e.mu.TryLock() {
		defer context.AfterFunc(ctx, e.reply.aborter())()
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	if e.ended {
		return errAnswered
	}
	if err := e.clientLostCause(); err != nil {
		return err
	}
	switch {
	case m.Kind() == jsonrpc.Response && m.ID() == e.id:
		return e.answer(ctx, m)
	case m.Kind() == jsonrpc.Response && e.id.Equivalent(m.ID()):
		return e.answer(ctx, m.WithID(e.id))
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		if e.id.Equivalent(m.CancelledID()) {
			e.endCancelled(ctx)
		}
		return nil
	case m.Kind() == jsonrpc.Notification && m.Related() != jsonrpc.NullID:
		return e.sendNotification(ctx, m)
	}
	e.h.opts.Logger.Debug("message dropped: it is none that the reply to a request may have", "method", m.Method())
	return nil
}

// TrySend sends m if it is the answer, is short, and the client takes it at once; false: nothing was done.
func (e *exchange) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Response || m.ID() != e.id || m.Size() > maxSmallReply {
		return false
	}
	quick := httpserve.InlineReplyOf(e.r)
	if quick == nil || !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if e.ended || e.answersAsEvent(m) || e.clientLostCause() != nil {
		return false
	}
	return quick.TryWrite(func() {
		_ = e.answerSmallJSON(m)
		_ = http.NewResponseController(e.reply.ResponseWriter).Flush()
	})
}

// The caller of the methods that follow, up to Close, holds mu.

// sendNotification writes a notification to the stream, which begins with it if there is none yet.
func (e *exchange) sendNotification(ctx context.Context, m jsonrpc.Message) error {
	if err := e.reply.beginWrite(ctx); err != nil {
		return err
	}
	defer e.reply.endWrite()
	return e.writeEvent(ctx, m)
}

// writeEvent writes a message to the stream, and begins the stream if there is none yet.
func (e *exchange) writeEvent(ctx context.Context, m jsonrpc.Message) error {
	if e.out == nil {
		e.commit()
	}
	e.out.Line(sse.Event{}, m.Line())
	return e.flushFor(ctx)
}

// answer writes the response, which ends the exchange.
func (e *exchange) answer(ctx context.Context, m jsonrpc.Message) error {
	stream := e.answersAsEvent(m)
	if !stream && m.Size() <= maxSmallReply {
		return e.answerSmallJSON(m) // is kept until the end, or until Close
	}
	if err := e.reply.beginWrite(ctx); err != nil {
		return err
	}
	defer e.reply.endWrite()
	defer e.markEnded()
	if stream {
		return e.writeEvent(ctx, m)
	}
	e.beginJSON(m)
	e.openWriter()
	_ = writeParts(e.out, m) // Flush returns the error
	return e.flushFor(ctx)
}

// answersAsEvent reports whether the response m has to be an event of a stream: one has begun, or
// m ends a subscriptions/listen. Otherwise it is JSON.
func (e *exchange) answersAsEvent(m jsonrpc.Message) bool {
	return e.out != nil || e.method == "subscriptions/listen" && !m.IsError() // MI21
}

// answerSmallJSON ends the exchange: it writes the response m as JSON. m is so short that net/http
// keeps it until the handler returns or flushes.
func (e *exchange) answerSmallJSON(m jsonrpc.Message) error {
	e.beginJSON(m)
	e.markEnded()
	return writeParts(&e.reply, m)
}

// writeParts writes a message to w piece by piece, without a copy of it.
func writeParts(w io.Writer, m jsonrpc.Message) error {
	first, id, rest := m.SplitAtID()
	for _, part := range [...][]byte{first, []byte(id), rest} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// beginJSON writes the status and the headers of a reply that is the response m as JSON.
func (e *exchange) beginJSON(m jsonrpc.Message) {
	status, header := answerStatus(m, e.method), e.reply.Header()
	header["Content-Type"] = valueJSON
	header["Content-Length"] = []string{strconv.Itoa(m.Size())}
	if status == http.StatusServiceUnavailable {
		httpserve.SetRetryAfter(header)
	}
	e.reply.WriteHeader(status)
}

// valueRevoked is the WWW-Authenticate header of a reply to a request whose token was revoked.
var valueRevoked = []string{`Bearer realm="mcp-bridge", error="invalid_token"`}

// commit makes the reply an SSE stream: it begins with the status and the headers.
func (e *exchange) commit() {
	e.openWriter()
	e.out.Begin()
}

// openWriter sets out, which writes a stream or a long JSON reply.
func (e *exchange) openWriter() {
	e.timerMu.Lock()
	e.out = sse.NewWriter(&e.reply, e.h.opts.StallAfter)
	e.timerMu.Unlock()
}

// flush sends on its way what was written to out. The error is errClientGone: the client does not take it.
func (e *exchange) flush() error {
	if err := e.out.Flush(); err != nil {
		e.cancel(errClientGone)
		return errClientGone
	}
	e.scheduleKeepAlive()
	return nil
}

// flushFor sends on its way what was written to out, in a write that is broken off when ctx is done: then the error is
// ctx's. Otherwise an error is errClientGone.
func (e *exchange) flushFor(ctx context.Context) error {
	err := e.flush()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// markEnded notes that the request is answered, or never will be, and tells who waits for that.
func (e *exchange) markEnded() {
	if e.ended {
		return
	}
	e.timerMu.Lock()
	defer e.timerMu.Unlock()
	e.ended = true
	if e.timer != nil {
		e.timer.Clear()
	}
	if e.unwatch != nil {
		e.unwatch()
	}
	if e.done != nil {
		close(e.done)
	}
}

// endUnanswered ends a request that the server does not answer: with an error if the client is
// there, and with status 401 if its token was revoked before the reply has begun.
func (e *exchange) endUnanswered(ctx context.Context) {
	why := e.clientLostCause()
	switch {
	case e.ended:
	case why == nil:
		_ = e.answer(ctx, e.noAnswerError())
	case why == errRevoked && e.out == nil:
		e.reply.Header()["Www-Authenticate"] = valueRevoked
		refuseID(&e.reply, e.r, "A11", http.StatusUnauthorized, e.id, why.Error())
	}
	e.markEnded()
}

// endCancelled ends a request, mostly a subscription, that the server has cancelled: its stream ends,
// or it is answered with an error if none has begun. (Only other transports have a message for that.)
func (e *exchange) endCancelled(ctx context.Context) {
	if e.out == nil {
		e.endUnanswered(ctx)
	}
	e.markEnded()
}

// noAnswerError returns the error for a client whose request the server has not answered.
func (e *exchange) noAnswerError() jsonrpc.Message {
	text, data := "the server has ended the conversation without an answer", serverEndedData
	if context.Cause(e.ctx) == bridge.ErrClosing {
		text, data = bridge.ErrClosing.Error(), shuttingDownData
	}
	return jsonrpc.NewError(e.id, jsonrpc.CodeInternalError, text, data)
}

var (
	serverEndedData  = []byte(`{"reason":"server_ended"}`)  // error data: the server has ended without an answer
	shuttingDownData = []byte(`{"reason":"shutting_down"}`) // error data: the bridge is being closed
)

// Close ends the exchange. An answer that was sent gets to the client now, and
// not only when the bridge.Handler returns.
func (e *exchange) Close(error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reply.releasedConn { // nobody looks at what becomes of it
		return nil
	}
	ctx := e.r.Context()
	e.endUnanswered(ctx)
	if e.reply.beginWrite(ctx) == nil {
		e.reply.flush(e.h.opts.StallAfter)
		e.reply.endWrite()
	}
	return nil
}

// release ends the exchange for good: the reply belongs to net/http again, and nothing of
// the exchange goes on. If the client has hung up before there was a reply, release panics
// (abortHandler), so that there will be none.
func (e *exchange) release() {
	defer e.stopTimer()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endUnanswered(e.r.Context())
	e.reply.releaseConn()
	if !e.reply.begun {
		abortHandler()
	}
}

// stopTimer stops the timer, and waits for a call of onTimer that goes on. The caller holds no
// lock, and the request has ended.
func (e *exchange) stopTimer() {
	e.timerMu.Lock()
	timer := e.timer
	e.timerMu.Unlock()
	if timer != nil {
		timer.Stop()
	}
}
