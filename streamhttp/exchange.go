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
	errClientGone = errors.New("the client has hung up")
	errRevoked    = errors.New("the token of the request has been revoked")
	errAnswered   = errors.New("the request has been answered")
)

// exchange is one POST of 2026-07-28: a bridge.Conn that is one request long.
// Receive hands on the request, in the goroutine of net/http; then, if the client hangs
// up, its cancellation (MI15); then it returns io.EOF. Send writes to the reply at once,
// in the caller's goroutine: the answer alone as JSON, anything else as an SSE stream (MI13).
//
// Order of locks: mu, then reply.mu or clock. mu is held while the reply is written, so
// that what is sent is written in order; clock and reply.mu are not.
type exchange struct {
	h      *Handler
	r      *http.Request
	ctx    context.Context // its cause tells why it is done
	cancel context.CancelCauseFunc
	served identity.PartyContext // of the bridge.Handler: ctx
	party  atomic.Pointer[string]
	id     jsonrpc.ID
	method string

	// What Receive has to hand on; one goroutine at a time calls it.
	m                jsonrpc.Message // the request
	cancellationSent bool            // its cancellation was handed on

	mu    sync.Mutex // held while the reply is being written
	reply reply
	out   *sse.Writer // the stream; nil as long as the reply has not begun; set with clock held as well
	ended bool        // the request is answered, or never will be; set with clock held as well

	clock   sync.Mutex       // never held during a write
	began   time.Time        // when the Handler began to serve the request
	timer   *lazytimer.Timer // calls tick; nil: it was not set yet
	unwatch func() bool      // ends the watch over the client; nil: there is none yet
	done    chan struct{}    // closed when over is set; nil: nobody has asked for it
}

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request, m jsonrpc.Message, share *httpserve.Share) *exchange {
	e := &exchange{h: h, r: r, id: m.ID(), method: m.Method(), m: m}
	e.reply.ResponseWriter = w
	ctx := identity.WithPrincipal(context.WithoutCancel(r.Context()), principal(r))
	if share.IsCounted() {
		ctx = bridge.WithPassed(ctx, func(kept int) {
			e.m = jsonrpc.Message{} // its bytes are the server's now
			share.Keep(kept)
		})
	}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	e.served = identity.PartyContext{Context: e.ctx, Client: e}
	return e
}

// Party implements what identity.PartyContext asks. It may be called concurrently.
func (e *exchange) Party() string {
	party := e.party.Load()
	if party == nil { // most never need it
		name := e.h.opts.Guard.Party(e.r)
		party = &name
		e.party.Store(party)
	}
	return *party
}

// watch sees to it that ctx is done when the client hangs up. Most requests are
// answered before it would be worth it (see exchanges).
func (e *exchange) watch() {
	e.clock.Lock()
	defer e.clock.Unlock()
	if e.unwatch == nil && !e.ended {
		e.unwatch = context.AfterFunc(e.r.Context(), func() { e.cancel(errClientGone) })
	}
}

func (e *exchange) isOver() bool {
	e.clock.Lock()
	defer e.clock.Unlock()
	return e.ended
}

// answered returns what is closed when the request is answered, or never will be.
func (e *exchange) answered() <-chan struct{} {
	e.clock.Lock()
	defer e.clock.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.ended {
			close(e.done)
		}
	}
	return e.done
}

// refuse answers the request in the server's place.
func (e *exchange) refuse(no *era.Refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lossCause() == nil {
		_ = e.answer(e.r.Context(), no.Response(e.id))
	}
}

// scheduleCommit sets the time at which the reply becomes a stream, unless it is
// one or is complete.
func (e *exchange) scheduleCommit() {
	e.clock.Lock()
	defer e.clock.Unlock()
	if e.timer == nil && !e.ended {
		e.tickAt(e.began.Add(e.h.opts.ModernCommitAfter))
	}
}

// awaitSilence sets the time at which a stream has been silent for too long.
func (e *exchange) awaitSilence() {
	e.clock.Lock()
	defer e.clock.Unlock()
	if !e.ended {
		e.tickLater()
	}
}

// tickAt has tick called. The caller holds clock.
func (e *exchange) tickAt(at time.Time) {
	if e.timer == nil {
		e.timer = &lazytimer.Timer{Do: e.tick}
	}
	e.timer.Set(at)
}

// tickLater has tick called when a stream has been silent for too long. The caller holds clock.
func (e *exchange) tickLater() {
	switch every := e.h.opts.KeepAlive; {
	case every > 0:
		e.tickAt(time.Now().Add(every))
	case e.timer != nil:
		e.timer.Clear()
	}
}

// tick begins the stream, or says something on it because nobody else does.
func (e *exchange) tick() {
	if !e.mu.TryLock() { // somebody does, or drops something
		e.scheduleTick()
		return
	}
	defer e.mu.Unlock()
	if e.ended || e.reply.begin(e.r.Context()) != nil {
		return
	}
	defer e.reply.end()
	if e.out == nil {
		e.commit()
	} else {
		e.out.Comment("keep-alive")
	}
	_ = e.flush()
}

// commitRetry is when tick looks again whose reply has not begun.
const commitRetry = 10 * time.Millisecond

// scheduleTick has tick called again: soon, if the reply is still to begin.
func (e *exchange) scheduleTick() {
	e.clock.Lock()
	defer e.clock.Unlock()
	switch {
	case e.ended:
	case e.out == nil:
		e.tickAt(time.Now().Add(commitRetry))
	default:
		e.tickLater()
	}
}

// lossCause returns why the client gets nothing any more; nil: it does.
func (e *exchange) lossCause() error {
	if e.r.Context().Err() != nil {
		e.cancel(errClientGone)
		return errClientGone
	}
	if err := context.Cause(e.ctx); err != nil && err != bridge.ErrClosing {
		return err
	}
	return nil
}

// Receive hands on the request, and after it what becomes of its client. ctx is that of
// the bridge.Handler, which is done when the client has hung up, or a later one.
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

// awaitEnd waits until the request is answered, or its client has hung up.
func (e *exchange) awaitEnd(ctx context.Context, sink bridge.Sink) error {
	changed, done := e.ctx.Done(), e.answered()
	for {
		select {
		case <-done:
			return io.EOF
		default:
		}
		if e.lossCause() != nil {
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

// sendCancellation hands on the cancellation of the request, once.
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

// Send writes one message of the server. The answer ends the exchange. What a
// client must not get here is dropped: requests (MI14), other requests'
// answers, and what is known to belong to none.
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
	if err := e.lossCause(); err != nil {
		return err
	}
	switch {
	case m.Kind() == jsonrpc.Response && m.ID() == e.id:
		return e.answer(ctx, m)
	case m.Kind() == jsonrpc.Response && e.id.Equivalent(m.ID()):
		return e.answer(ctx, m.WithID(e.id))
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		if e.id.Equivalent(m.CancelledID()) {
			e.cancelled(ctx)
		}
		return nil
	case m.Kind() == jsonrpc.Notification && m.Related() != jsonrpc.NullID:
		return e.sendNotification(ctx, m)
	}
	e.h.opts.Logger.Debug("message dropped: it is none that the reply to a request may have", "method", m.Method())
	return nil
}

// TrySend is Send for a short answer that the client takes at once.
func (e *exchange) TrySend(m jsonrpc.Message) bool {
	if m.Kind() != jsonrpc.Response || m.ID() != e.id || m.Size() > maxSmallReply {
		return false
	}
	quick := httpserve.InlineReplyOf(e.r)
	if quick == nil || !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if e.ended || e.isEvent(m) || e.lossCause() != nil {
		return false
	}
	return quick.Write(func() {
		_ = e.answerSmall(m)
		_ = http.NewResponseController(e.reply.ResponseWriter).Flush()
	})
}

// sendNotification writes a notification. The caller holds the lock, as for all that follows.
func (e *exchange) sendNotification(ctx context.Context, m jsonrpc.Message) error {
	if err := e.reply.begin(ctx); err != nil {
		return err
	}
	defer e.reply.end()
	return e.writeEvent(ctx, m)
}

// writeEvent writes a message to the stream.
func (e *exchange) writeEvent(ctx context.Context, m jsonrpc.Message) error {
	if e.out == nil {
		e.commit()
	}
	e.out.Line(sse.Event{}, m.Line())
	return e.sent(ctx)
}

// answer writes the response, which ends the exchange.
func (e *exchange) answer(ctx context.Context, m jsonrpc.Message) error {
	stream := e.isEvent(m)
	if !stream && m.Size() <= maxSmallReply {
		return e.answerSmall(m) // is kept until the end, or until Close
	}
	if err := e.reply.begin(ctx); err != nil {
		return err
	}
	defer e.reply.end()
	defer e.settle()
	if stream {
		return e.writeEvent(ctx, m)
	}
	e.beginJSON(m)
	e.open()
	_ = writeParts(e.out, m) // Flush returns the error
	return e.sent(ctx)
}

// isEvent reports whether a response is an event of a stream.
func (e *exchange) isEvent(m jsonrpc.Message) bool {
	return e.out != nil || e.method == "subscriptions/listen" && !m.IsError() // MI21
}

// answerSmall makes the reply one response that net/http keeps.
func (e *exchange) answerSmall(m jsonrpc.Message) error {
	e.beginJSON(m)
	e.settle()
	return writeParts(&e.reply, m)
}

// writeParts writes a message without a copy of it.
func writeParts(w io.Writer, m jsonrpc.Message) error {
	first, id, rest := m.SplitAtID()
	for _, part := range [...][]byte{first, []byte(id), rest} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// beginJSON makes the reply one response, with the status that it means.
func (e *exchange) beginJSON(m jsonrpc.Message) {
	status, header := statusOf(m, e.method), e.reply.Header()
	header["Content-Type"] = valueJSON
	header["Content-Length"] = []string{strconv.Itoa(m.Size())}
	if status == http.StatusServiceUnavailable {
		httpserve.SetRetryAfter(header)
	}
	e.reply.WriteHeader(status)
}

// valueRevoked is shared by all replies; net/http does not change it.
var valueRevoked = []string{`Bearer realm="mcp-bridge", error="invalid_token"`}

// commit makes the reply a stream.
func (e *exchange) commit() {
	e.open()
	e.out.Begin()
}

// open makes what the reply is written to.
func (e *exchange) open() {
	e.clock.Lock()
	e.out = sse.NewWriter(&e.reply, e.h.opts.StallAfter)
	e.clock.Unlock()
}

// flush sends on its way what was written to the stream.
func (e *exchange) flush() error {
	if err := e.out.Flush(); err != nil {
		e.cancel(errClientGone)
		return errClientGone
	}
	e.awaitSilence()
	return nil
}

// sent flushes, and says that ctx is done if that has broken the reply off.
func (e *exchange) sent(ctx context.Context) error {
	err := e.flush()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// settle says that the request is answered, or never will be.
func (e *exchange) settle() {
	if e.ended {
		return
	}
	e.clock.Lock()
	defer e.clock.Unlock()
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

// end ends a request that the server does not answer: with an error, if anybody is there
// to read it.
func (e *exchange) end(ctx context.Context) {
	why := e.lossCause()
	switch {
	case e.ended:
	case why == nil:
		_ = e.answer(ctx, e.unanswered())
	case why == errRevoked && e.out == nil:
		e.reply.Header()["Www-Authenticate"] = valueRevoked
		refuseID(&e.reply, e.r, "A11", http.StatusUnauthorized, e.id, why.Error())
	}
	e.settle()
}

// cancelled ends a subscription that the server has cancelled: its stream ends. (Only
// other transports have a message for that.)
func (e *exchange) cancelled(ctx context.Context) {
	if e.out == nil {
		e.end(ctx)
	}
	e.settle()
}

// unanswered is what a client is told whose request has had no answer.
func (e *exchange) unanswered() jsonrpc.Message {
	text, data := "the server has ended the conversation without an answer", serverEndedData
	if context.Cause(e.ctx) == bridge.ErrClosing {
		text, data = bridge.ErrClosing.Error(), shuttingDownData
	}
	return jsonrpc.NewError(e.id, jsonrpc.CodeInternalError, text, data)
}

var (
	serverEndedData  = []byte(`{"reason":"server_ended"}`)
	shuttingDownData = []byte(`{"reason":"shutting_down"}`)
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
	e.end(ctx)
	if e.reply.begin(ctx) == nil {
		e.reply.flush(e.h.opts.StallAfter)
		e.reply.end()
	}
	return nil
}

// release ends the exchange for good: the reply belongs to net/http again, and nothing of
// the exchange goes on. If the client has hung up before there was a reply, there will be none.
func (e *exchange) release() {
	defer e.stopTimer()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(e.r.Context())
	e.reply.releaseConn()
	if !e.reply.begun {
		abortHandler()
	}
}

// stopTimer waits for a tick that goes on. The caller holds no lock, and the request is settled.
func (e *exchange) stopTimer() {
	e.clock.Lock()
	timer := e.timer
	e.clock.Unlock()
	if timer != nil {
		timer.Stop()
	}
}
