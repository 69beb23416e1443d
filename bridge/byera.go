package bridge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ByEra returns a Handler for connections that may carry both eras (ST14, WS4). Each request
// goes to the Handler of its own era; a request without a modern claim is legacy. A Handler is
// started by the first message for it. When it closes its Conn, the client is closed only if the
// other was never started, or has closed its Conn or returned. When one closes its Conn or
// returns although the client has not ended, the ctx of the other is cancelled.
//
// Notifications with a modern claim go to modern. Without a claim, a cancellation goes where its
// request is; responses, and all other notifications, go to legacy if that runs, else to modern.
func ByEra(legacy, modern Handler) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		s, err := newEraSplit(ctx, client, legacy, modern)
		if s == nil {
			return err
		}
		return s.serve()
	})
}

// newEraSplit waits for the client's first message, and returns the eraSplit that begins with it. legacy and
// modern serve the half of their era. s is nil if there is no message: err is then what the Handler returns.
func newEraSplit(ctx context.Context, client Conn, legacy, modern Handler) (s *eraSplit, err error) {
	first, err := First(ctx, client)
	if err != nil {
		if isOrderlyEnd(err) {
			err = nil
		}
		return nil, err
	}
	s = &eraSplit{client: client, parentCtx: ctx}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for i, h := range []Handler{legacy, modern} {
		s.halves[i].eraSplit, s.halves[i].handler = s, h
		s.halves[i].closing, s.halves[i].endClosing = context.WithCancel(context.Background())
	}
	s.firstHalf = s.route(&first)
	s.firstHalf.started, s.firstHalf.pending = true, &first
	return s, nil
}

// serve runs the Handlers and returns their errors. It needs little stack, like all on which a session waits.
func (s *eraSplit) serve() error {
	defer s.end()
	err := s.firstHalf.run()
	s.secondHandler.Wait()
	s.stopReading()
	return errors.Join(err, s.secondErr)
}

// end ends what the Handlers may still wait for, once both have returned.
func (s *eraSplit) end() {
	for i := range s.halves {
		s.halves[i].endClosing()
	}
	s.cancel()
}

const (
	legacyHalf = iota // index in eraSplit.halves of the half for legacy messages
	modernHalf        // index in eraSplit.halves of the half for modern messages
)

// eraSplit shares one client's Conn between two Handlers. As long as only one of them is needed,
// which mostly stays so, that Handler receives from the client itself. With the first message
// for the other, a goroutine receives from the client for both, into an Inbox for each.
type eraSplit struct {
	client        Conn               // the Conn that is shared
	parentCtx     context.Context    // the ctx of ServeConn
	ctx           context.Context    // the context that the Handlers are given
	cancel        context.CancelFunc // ends ctx, the context of the Handlers
	secondHandler sync.WaitGroup     // waits for the Handler that was started second
	bothStarted   atomic.Bool        // both halves have a Handler; set under mu

	receiver    sync.WaitGroup     // waits for the goroutine that receives from the client for both halves
	stopReceive context.CancelFunc // ends the Receive for both halves; nil: there was none yet

	mu           sync.Mutex                    // guards the fields below, but of halves only what says so
	halves       [2]eraClientConn              // the one for legacy and the one for modern messages, at the indexes legacyHalf and modernHalf
	firstHalf    *eraClientConn                // the half that the client's first message is for; set before any Handler is started; nil before
	openRequests map[jsonrpc.ID]*eraClientConn // requests without an answer, and the half that each went to; nil until there are both
	clientErr    error                         // how the Receive for both has ended; nil: it has not
	closeReason  error                         // the first reason that a half was closed with, to close client with; nil: none has had one
	secondErr    error                         // the error of the Handler that was started second
}

// eraClientConn is one half of an eraSplit: the client's Conn as the Handler of one era sees it.
type eraClientConn struct {
	*eraSplit
	handler    Handler            // serves the messages of this half's era
	inbox      Inbox              // messages for this half; used once there are both
	closing    context.Context    // done when this half takes nothing more: it was closed, or its Handler has returned
	endClosing context.CancelFunc // ends closing: this half takes nothing more
	closed     atomic.Bool        // this half takes nothing more; set under eraSplit.mu
	started    bool               // this half has a Handler; under eraSplit.mu

	// pending is the message of the client that this half is offered next, because its Handler's Sink has refused it, or
	// because it is the first; nil: there is none. Used as long as there is one half.
	pending *jsonrpc.Message
}

// run has the Handler of this half serve, and returns its error.
func (h *eraClientConn) run() error {
	err := h.handler.ServeConn(h.ctx, h)
	h.finishHandler()
	return err
}

// finishHandler is called when the Handler has returned: the half takes nothing more, and a
// request that is pending, which the Handler has not taken, is refused. It is not inlined into run, because a goroutine
// that waits there should need little stack: there are as many as there are sessions.
//
//go:noinline
func (h *eraClientConn) finishHandler() {
	h.stopReceiving(nil)
	if h.pending != nil && !h.bothStarted.Load() {
		h.refuse(*h.pending)
	}
}

// stopReceiving makes the half take nothing more, and answers the requests in its Inbox with an error. why is the
// reason to close the client; nil: none. last: the other half takes nothing any more either.
func (h *eraClientConn) stopReceiving(why error) (last bool) {
	h.mu.Lock()
	h.closed.Store(true)
	h.endClosing()
	if h.closeReason == nil {
		h.closeReason = why
	}
	last = h.endOtherHalf()
	h.mu.Unlock()
	for _, m := range h.inbox.abort(io.ErrClosedPipe) {
		if h.owesAnswer(&m) {
			h.refuse(m)
		}
	}
	return last
}

// owesAnswer reports whether m is a request that went to this half, to the Handler of one era, and has no answer yet.
// A request that still waits in the Inbox may have its answer: a Handler may answer what it was offered without taking
// it. As long as only one era's Handler is needed, nobody counts answers, and owesAnswer returns false.
func (h *eraClientConn) owesAnswer(m *jsonrpc.Message) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return m.Kind() == jsonrpc.Request && h.openRequests[m.ID()] == h
}

// endOtherHalf is called when this half has ended: it cancels the context of the other's Handler, unless the client's
// end of input ends that anyway. last: the other has ended, or was never started. It is called with mu held.
func (h *eraClientConn) endOtherHalf() (last bool) {
	for i := range h.halves {
		if o := &h.halves[i]; o.started && !o.closed.Load() {
			if !errors.Is(h.clientErr, io.EOF) {
				h.cancel()
			}
			return false
		}
	}
	return true
}

// refuse answers a request that no Handler takes any more with an error. It does nothing for other messages.
func (h *eraClientConn) refuse(m jsonrpc.Message) {
	if m.Kind() != jsonrpc.Request {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownmsg.FinalSendTimeout)
	defer cancel()
	text, data := errOtherSideGone.Error(), ownmsg.ServerEndedData
	if h.parentCtx.Err() != nil {
		text, data = ErrClosing.Error(), ownmsg.ShuttingDownData
	}
	_ = h.client.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, data))
}

// route returns the half that a message of the client is for (see ByEra). It is called with mu held, or by who
// receives from the client, as long as there is one half.
func (s *eraSplit) route(m *jsonrpc.Message) *eraClientConn {
	legacy, modern := &s.halves[legacyHalf], &s.halves[modernHalf]
	switch {
	case m.Kind() != jsonrpc.Response && len(m.Meta()) > 0 && era.Meta{Version: m.Lookup("params", "_meta", era.KeyVersion)}.IsModern():
		return modern
	case m.Kind() == jsonrpc.Request:
		return legacy
	case m.Method() == ownmsg.Cancelled && s.bothStarted.Load():
		if _, h, ok := jsonrpc.Find(s.openRequests, m.CancelledID()); ok {
			return h
		}
		return s.firstHalf
	case legacy.started:
		return legacy
	}
	return modern
}

// Receive implements Conn: it hands on the client's messages for this half. A first message for the other half starts
// that.
func (h *eraClientConn) Receive(ctx context.Context, sink Sink) error {
	if !h.bothStarted.Load() {
		err := h.client.Receive(ctx, &halfSink{eraClientConn: h, sink: sink})
		switch {
		case err == errOtherEra && !h.closed.Load():
			h.startOther()
		case err == errOtherEra:
			return io.ErrClosedPipe
		default:
			return err
		}
	}
	return h.receiveOwn(ctx, sink)
}

// receiveOwn does the work of Receive once there are both halves: it takes from the half's Inbox. It is not inlined into
// Receive, because a goroutine that waits there should need little stack, and most clients use one half.
//
//go:noinline
func (h *eraClientConn) receiveOwn(ctx context.Context, sink Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.closing, cancel)()
	watch := NewStallWatch(ctx, h.clientEndErr)
	defer watch.Stop()
	err := h.inbox.Receive(ctx, &watchedSink{sink, watch})
	if err != nil && err == ctx.Err() { // that the client has gone may have been the end of ctx
		if h.parentCtx.Err() != nil {
			h.stopReading() // then the client says whether it has
		}
		err = cmp.Or(h.clientEndErr(), err)
	}
	if h.closed.Load() {
		return io.ErrClosedPipe
	}
	return err
}

// errOtherEra ends the Receive of a half that is alone, at a message for the other half.
var errOtherEra = errors.New("a message of the other era")

// halfSink is the Sink of the client's Receive while the Handler of only one half of the eraSplit runs. It passes on the
// messages for that half. A message for the other half ends the Receive.
type halfSink struct {
	*eraClientConn
	sink Sink // the Sink that the Handler of the half receives with
}

// TrySend implements Sink: it passes a message for the half on, if it is taken at once.
func (s *halfSink) TrySend(m jsonrpc.Message) bool {
	if s.closed.Load() || s.route(&m) != s.eraClientConn || !s.sink.TrySend(m) {
		return false
	}
	s.noteTaken()
	return true
}

// Send implements Sink: it passes a message for the half on. For a message of the other half, and once this half is closed,
// it returns errOtherEra.
func (s *halfSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.closed.Load() || s.route(&m) != s.eraClientConn {
		return errOtherEra
	}
	if err := s.sink.Send(ctx, m); err != nil {
		refused := m // m itself would always be allocated
		s.pending = &refused
		return err
	}
	s.noteTaken()
	return nil
}

// noteTaken forgets the pending message: the Handler has taken it.
func (s *halfSink) noteTaken() {
	if s.pending != nil {
		s.pending = nil
	}
}

// watchedSink is a Sink whose Send goes by way of a StallWatch.
type watchedSink struct {
	Sink
	watch *StallWatch // the StallWatch that makes the Sends
}

// Send implements Sink: it has the StallWatch send m to the inner Sink, with the StallWatch's ctx in the place of its own.
func (s *watchedSink) Send(_ context.Context, m jsonrpc.Message) error {
	return s.watch.Send(s.Sink, m)
}

// clientEndErr returns how the client has ended, for a StallWatch; nil: it has not.
func (s *eraSplit) clientEndErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clientErr
}

// startOther starts the other half's Handler, and a goroutine that receives from the client for both.
func (h *eraClientConn) startOther() {
	o := &h.halves[legacyHalf]
	if o == h {
		o = &h.halves[modernHalf]
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(h.parentCtx))
	h.mu.Lock()
	o.started = true
	h.openRequests = make(map[jsonrpc.ID]*eraClientConn)
	h.stopReceive = stop
	h.bothStarted.Store(true)
	h.mu.Unlock()
	h.receiver.Go(func() { // comes first: the other may wait for its end
		err := h.client.Receive(ctx, (*splitSink)(h.eraSplit))
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return // the client has not ended
		}
		h.mu.Lock()
		h.clientErr = err
		h.mu.Unlock()
		for i := range h.halves {
			h.halves[i].inbox.End(err)
		}
	})
	h.secondHandler.Go(func() {
		err := o.run()
		h.mu.Lock()
		h.secondErr = err
		h.mu.Unlock()
	})
}

// stopReading ends the goroutine that receives for both halves, if there is one, and waits for that. It may be called
// concurrently.
func (s *eraSplit) stopReading() {
	if s.stopReceive != nil {
		s.stopReceive()
		s.receiver.Wait()
	}
}

// splitSink is an eraSplit as the Sink of the Receive for both halves: it puts each message into the Inbox of its
// half.
type splitSink eraSplit

// halfFor returns the half that a message is for, and notes the half of a request in openRequests. If the message is
// offered again, it returns the same half.
func (r *splitSink) halfFor(m *jsonrpc.Message) *eraClientConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := (*eraSplit)(r).route(m)
	if m.Kind() == jsonrpc.Request {
		r.openRequests[m.ID()] = h
	}
	return h
}

// noteTaken is called with a message that was taken: if that is a cancellation, the request that it cancels is open no
// more.
func (r *splitSink) noteTaken(m *jsonrpc.Message) {
	if m.Method() == ownmsg.Cancelled {
		r.mu.Lock()
		defer r.mu.Unlock()
		id, _, _ := jsonrpc.Find(r.openRequests, m.CancelledID())
		delete(r.openRequests, id)
	}
}

// TrySend implements Sink: it puts a message into the Inbox of its half; false: there is no room, or the half takes
// nothing more.
func (r *splitSink) TrySend(m jsonrpc.Message) bool {
	if h := r.halfFor(&m); h.closed.Load() || !h.inbox.TrySend(m) {
		return false
	}
	r.noteTaken(&m)
	return true
}

// Send implements Sink: it puts a message into the Inbox of its half, and waits while that has no room. A request for a half
// that takes nothing more is answered with an error, any other message for it is dropped.
func (r *splitSink) Send(ctx context.Context, m jsonrpc.Message) error {
	h := r.halfFor(&m)
	err := h.inbox.Send(ctx, m)
	switch {
	case err == nil:
	case h.closed.Load():
		h.refuse(m)
	default:
		return err
	}
	r.noteTaken(&m)
	return nil
}

// Send implements Conn: it sends to the client, until this half is closed.
func (h *eraClientConn) Send(ctx context.Context, m jsonrpc.Message) error {
	if h.closed.Load() {
		return io.ErrClosedPipe
	}
	h.noteAnswered(&m)
	return h.client.Send(ctx, m)
}

// TrySend implements Conn: it is Send where the client takes the message at once.
func (h *eraClientConn) TrySend(m jsonrpc.Message) bool {
	if h.closed.Load() {
		return false
	}
	h.noteAnswered(&m)
	return h.client.TrySend(m)
}

// noteAnswered is called with each message for the client: a request that it answers is open no more.
func (h *eraClientConn) noteAnswered(m *jsonrpc.Message) {
	if h.bothStarted.Load() && m.Kind() == jsonrpc.Response {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.openRequests, m.ID())
	}
}

// Close implements Conn. It closes the client if the other half needs that no more either.
func (h *eraClientConn) Close(reason error) error {
	if !h.stopReceiving(reason) {
		return nil
	}
	h.mu.Lock()
	why := h.closeReason
	h.mu.Unlock()
	return h.client.Close(why)
}
