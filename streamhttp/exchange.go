package streamhttp

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

var (
	errClientGone = errors.New("the client has hung up")
	errRevoked    = errors.New("the token of the request has been revoked")
	errAnswered   = errors.New("the request has been answered")
)

// exchange is one POST of 2026-07-28: a bridge.PullConn that is one request long.
// Recv gives the request; then, if the client hangs up, its cancellation
// (MI15); then io.EOF. Send writes to the reply at once, in the caller's
// goroutine: the answer alone as JSON, anything else as an SSE stream (MI13).
type exchange struct {
	h      *Handler
	r      *http.Request
	ctx    context.Context // its cause tells why it is done
	cancel context.CancelCauseFunc
	served bridge.PartyContext // of the bridge.Handler: ctx
	party  atomic.Pointer[string]
	id     jsonrpc.ID
	method string

	// What Recv has to give; one goroutine at a time calls it.
	m         jsonrpc.Message
	withdrawn bool

	mu    sync.Mutex // held while the reply is being written
	reply reply
	out   *sse.Writer // the stream; nil as long as the reply has not begun; set with clock held as well
	over  bool        // the request is answered, or never will be; set with clock held as well

	clock   sync.Mutex    // never held during a write
	came    time.Time     // when the Handler began to serve the request
	timer   *time.Timer   // calls tick; nil: it was not set yet
	unwatch func() bool   // ends the watch over the client; nil: there is none yet
	done    chan struct{} // closed when over is set; nil: nobody has asked for it
}

func newExchange(h *Handler, w http.ResponseWriter, r *http.Request, m jsonrpc.Message, share *httpserve.Share) *exchange {
	e := &exchange{h: h, r: r, id: m.ID(), method: m.Method(), m: m}
	e.reply.ResponseWriter = w
	ctx := bridge.WithPrincipal(context.WithoutCancel(r.Context()), principal(r))
	if share.Counts() {
		ctx = bridge.WithPassed(ctx, share.Keep)
	}
	e.ctx, e.cancel = context.WithCancelCause(ctx)
	e.served = bridge.PartyContext{Context: e.ctx, Client: e}
	return e
}

// Party implements what bridge.PartyContext asks. It may be called concurrently.
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
	if e.unwatch == nil && !e.over {
		e.unwatch = context.AfterFunc(e.r.Context(), func() { e.cancel(errClientGone) })
	}
}

func (e *exchange) isOver() bool {
	e.clock.Lock()
	defer e.clock.Unlock()
	return e.over
}

// answered returns what is closed when the request is answered, or never will be.
func (e *exchange) answered() <-chan struct{} {
	e.clock.Lock()
	defer e.clock.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.over {
			close(e.done)
		}
	}
	return e.done
}

// refuse answers the request in the server's place.
func (e *exchange) refuse(no *era.Refusal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost() == nil {
		_ = e.answer(e.r.Context(), no.Response(e.id))
	}
}

// awaitCommit sets the time at which the reply becomes a stream, unless it is
// one or is complete.
func (e *exchange) awaitCommit() {
	e.clock.Lock()
	defer e.clock.Unlock()
	if e.timer == nil && !e.over {
		e.timer = time.AfterFunc(time.Until(e.came.Add(e.h.opts.CommitModern)), e.tick)
	}
}

// awaitSilence sets the time at which a stream has been silent for too long.
func (e *exchange) awaitSilence() {
	e.clock.Lock()
	defer e.clock.Unlock()
	switch {
	case e.over:
	case e.timer == nil:
		e.timer = time.AfterFunc(e.every(), e.tick)
	default:
		e.timer.Reset(e.every())
	}
}

// tick begins the stream, or says something on it because nobody else does.
func (e *exchange) tick() {
	if !e.mu.TryLock() { // somebody does, or drops something
		e.again()
		return
	}
	defer e.mu.Unlock()
	if e.over || e.reply.begin(e.r.Context()) != nil {
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

// again has tick called again: soon, if the reply is still to begin.
func (e *exchange) again() {
	e.clock.Lock()
	defer e.clock.Unlock()
	switch {
	case e.over:
	case e.out == nil:
		e.timer.Reset(commitRetry)
	default:
		e.timer.Reset(e.every())
	}
}

// lost returns why the client gets nothing any more; nil: it does.
func (e *exchange) lost() error {
	if e.r.Context().Err() != nil {
		e.cancel(errClientGone)
		return errClientGone
	}
	if err := context.Cause(e.ctx); err != nil && err != bridge.ErrClosing {
		return err
	}
	return nil
}

// Recv gives the request, and after it what becomes of its client.
func (e *exchange) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if e.isOver() {
		return jsonrpc.Message{}, io.EOF
	}
	if m := e.m; m.Kind() != jsonrpc.Invalid {
		if err := ctx.Err(); err != nil {
			return jsonrpc.Message{}, err
		}
		e.m = jsonrpc.Message{} // its bytes are the server's now
		return m, nil
	}
	changed, done := e.ctx.Done(), e.answered()
	for {
		select {
		case <-done:
			return jsonrpc.Message{}, io.EOF
		default:
		}
		if e.lost() != nil {
			return e.withdraw()
		}
		if e.ctx.Err() != nil {
			changed = nil // the bridge is shutting down, but the client is there
		}
		if err := ctx.Err(); err != nil {
			return jsonrpc.Message{}, err
		}
		select {
		case <-done:
		case <-changed:
		case <-e.r.Context().Done():
		case <-ctx.Done():
		}
	}
}

// withdraw gives the cancellation of the request, once.
func (e *exchange) withdraw() (jsonrpc.Message, error) {
	if e.withdrawn {
		return jsonrpc.Message{}, io.EOF
	}
	e.withdrawn = true
	return jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+e.id.String()+`}`)), nil
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
	if e.over {
		return errAnswered
	}
	if err := e.lost(); err != nil {
		return err
	}
	switch {
	case m.Kind() == jsonrpc.Response && m.ID() == e.id:
		return e.answer(ctx, m)
	case m.Kind() == jsonrpc.Response && e.id.Equivalent(m.ID()):
		return e.answer(ctx, m.WithID(e.id))
	case m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled":
		if e.id.Equivalent(m.RequestID()) {
			e.subside(ctx)
		}
		return nil
	case m.Kind() == jsonrpc.Notification && m.Related() != jsonrpc.NullID:
		return e.notify(ctx, m)
	}
	e.h.opts.Logger.Debug("message dropped: it is none that the reply to a request may have", "method", m.Method())
	return nil
}

// TrySender is what bridge.TrySender says, for the answer.
func (e *exchange) TrySender() func(m jsonrpc.Message) bool {
	quick := httpserve.InlineReplyOf(e.r)
	if quick == nil {
		return nil
	}
	return func(m jsonrpc.Message) bool {
		if m.Kind() != jsonrpc.Response || m.ID() != e.id || m.Size() > smallReply || !e.mu.TryLock() {
			return false
		}
		defer e.mu.Unlock()
		if e.over || e.streams(m) || e.lost() != nil {
			return false
		}
		return quick.Write(func() {
			_ = e.answerSmall(m)
			_ = http.NewResponseController(e.reply.ResponseWriter).Flush()
		})
	}
}

// notify writes a notification. The caller holds the lock, as for all that follows.
func (e *exchange) notify(ctx context.Context, m jsonrpc.Message) error {
	if err := e.reply.begin(ctx); err != nil {
		return err
	}
	defer e.reply.end()
	return e.event(ctx, m)
}

// event writes a message to the stream.
func (e *exchange) event(ctx context.Context, m jsonrpc.Message) error {
	if e.out == nil {
		e.commit()
	}
	e.out.Line(sse.Event{}, m.Line())
	return e.sent(ctx)
}

// answer writes the response, which ends the exchange.
func (e *exchange) answer(ctx context.Context, m jsonrpc.Message) error {
	stream := e.streams(m)
	if !stream && m.Size() <= smallReply {
		return e.answerSmall(m) // is kept until the end, or until Close
	}
	if err := e.reply.begin(ctx); err != nil {
		return err
	}
	defer e.reply.end()
	defer e.finish()
	if stream {
		return e.event(ctx, m)
	}
	e.beginJSON(m)
	e.open()
	_ = writeParts(e.out, m) // Flush returns the error
	return e.sent(ctx)
}

// streams reports whether a response is an event of a stream.
func (e *exchange) streams(m jsonrpc.Message) bool {
	return e.out != nil || e.method == "subscriptions/listen" && !m.IsError() // MI21
}

// answerSmall makes the reply one response that net/http keeps.
func (e *exchange) answerSmall(m jsonrpc.Message) error {
	e.beginJSON(m)
	e.finish()
	return writeParts(&e.reply, m)
}

// writeParts writes a message without a copy of it.
func writeParts(w io.Writer, m jsonrpc.Message) error {
	first, id, rest := m.Parts()
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
		header["Retry-After"] = valueRetryAfter
	}
	e.reply.WriteHeader(status)
}

// Values shared by all replies; net/http does not change them.
var (
	valueRetryAfter = []string{"5"}
	valueRevoked    = []string{`Bearer realm="mcp-bridge", error="invalid_token"`}
)

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

// every is how long a stream may be silent.
func (e *exchange) every() time.Duration {
	if every := e.h.opts.KeepAlive; every > 0 {
		return every
	}
	return math.MaxInt64
}

// sent flushes, and says that ctx is done if that has broken the reply off.
func (e *exchange) sent(ctx context.Context) error {
	err := e.flush()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// subside ends a subscription that the server has cancelled, which only other
// transports have a message for: its stream ends.
func (e *exchange) subside(ctx context.Context) {
	if e.out == nil {
		e.conclude(ctx)
	}
	e.finish()
}

// finish says that the request is answered, or never will be.
func (e *exchange) finish() {
	if e.over {
		return
	}
	e.clock.Lock()
	e.over = true
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.unwatch != nil {
		e.unwatch()
	}
	if e.done != nil {
		close(e.done)
	}
	e.clock.Unlock()
}

// conclude ends a request that has no answer: with an error, if anybody is there.
func (e *exchange) conclude(ctx context.Context) {
	why := e.lost()
	switch {
	case e.over:
	case why == nil:
		_ = e.answer(ctx, e.unanswered())
	case why == errRevoked && e.out == nil:
		e.reply.Header()["Www-Authenticate"] = valueRevoked
		refuseID(&e.reply, e.r, http.StatusUnauthorized, e.id, why.Error())
	}
	e.finish()
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
func (e *exchange) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reply.left { // nobody looks at what becomes of it
		return nil
	}
	ctx := e.r.Context()
	e.conclude(ctx)
	if e.reply.begin(ctx) == nil {
		e.reply.flush(e.h.opts.StallAfter)
		e.reply.end()
	}
	return nil
}

// leave ends the exchange for good: the reply belongs to net/http again. If the
// client has hung up before there was one, there will be none.
func (e *exchange) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conclude(e.r.Context())
	e.reply.leave()
	if !e.reply.begun {
		abort()
	}
}
