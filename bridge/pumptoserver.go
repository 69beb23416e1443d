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
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a Pump's direction from the client to the server.

// receiving is the Receive from the client. When it is to stop, a Send to the server
// that is under way goes on: it has the time that ctx has.
type receiving struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stopped atomic.Bool // set under mu

	mu      sync.Mutex
	sending bool
	why     error // of stopped
}

func (r *receiving) init(ctx context.Context) { r.ctx, r.cancel = context.WithCancelCause(ctx) }

// stop lets nothing more be taken from the client. The first call says why.
func (r *receiving) stop(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = why
		r.stopped.Store(true)
	}
	if !r.sending {
		r.cancel(r.why)
	}
}

// begin comes before a Send to the server that may wait. It reports whether nothing is
// to be taken any more: what comes now has come before that.
func (r *receiving) begin() (stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sending = true
	return r.why != nil
}

// end comes after that.
func (r *receiving) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sending = false
	if r.why != nil {
		r.cancel(r.why)
	}
}

// done returns what is closed, and by then cause says why, once nothing more is
// received from the client.
func (r *receiving) done() <-chan struct{} { return r.ctx.Done() }

func (r *receiving) cause() error { return context.Cause(r.ctx) }

// fromClient copies from the client to the server until the client ends or
// Pump's ctx is done. What it waits for ends with late.
func (p *pump) fromClient(late context.Context) error {
	s := &toServerSink{pump: p, graceCtx: late}
	return s.ended(p.client.Receive(p.recv.ctx, s))
}

// ended goes on when nothing more comes from the client, whose Receive has returned err. It returns why.
//
//go:noinline
func (s *toServerSink) ended(err error) error {
	p := s.pump
	if p.recv.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = p.recv.cause()
	}
	if isOrderlyEnd(err) {
		s.stop()
	} else if err != errServerEnded {
		s.withdraw()
	}
	if !s.unsent.IsZero() && err == errHungUp { // it may be listening still
		p.answer(s.graceCtx, s.unsent, jsonrpc.CodeInternalError, err.Error(), ownmsg.TimedOutData)
	}
	return err
}

// toServerSink is what the client's Conn hands its messages to. Its calls do not overlap.
type toServerSink struct {
	*pump
	graceCtx context.Context

	// A message that is in the ledger, while the server has not taken it: as the server
	// is to get it. The client's Conn offers it again, unless it has withdrawn it.
	admitted bool
	was      jsonrpc.Key // of what the client has sent
	m        jsonrpc.Message

	stopped bool // nothing is taken any more

	unsent jsonrpc.ID // of a request that the server did not take before the client had gone
}

// TrySend copies a message to the server if the server takes it at once. What has to
// be answered by the Pump itself is left to Send.
func (s *toServerSink) TrySend(m jsonrpc.Message) bool {
	if s.recv.stopped.Load() { // nothing new is taken
		return false
	}
	if !s.isAdmitted(&m) {
		if m.Kind() == jsonrpc.Request {
			c := s.newClientCall(m)
			if s.toServer.open(c) != nil { // admit says what is wrong
				return false
			}
			s.arm(c)
			s.m = m
		} else {
			var ok bool
			if s.m, ok = s.admit(s.graceCtx, m); !ok {
				return true
			}
		}
		s.admitted = true
		s.was = m.Key()
	}
	if !s.server.TrySend(s.m) {
		return false
	}
	s.taken()
	return true
}

// isAdmitted reports whether m is in the ledger. One that was, and has been withdrawn
// since, is taken out of them.
func (s *toServerSink) isAdmitted(m *jsonrpc.Message) bool {
	if !s.admitted || s.was == m.Key() {
		return s.admitted
	}
	s.withdraw()
	return false
}

// withdraw takes a request out of the ledger that the server never had.
func (s *toServerSink) withdraw() {
	if s.m.Kind() == jsonrpc.Request {
		s.toServer.close(s.m.ID())
	}
	s.forget()
}

// stop answers a request that the server has not taken, and will not. Nothing is taken
// afterwards.
func (s *toServerSink) stop() {
	s.stopped = true
	if s.m.Kind() != jsonrpc.Request {
		return
	}
	id, owed := s.toServer.close(s.m.ID())
	s.forget()
	if !owed || s.ctx.Err() != nil { // it was answered, or nobody waits for the client any more
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), ownmsg.FinalSendTimeout)
	defer cancel()
	s.answer(ctx, id, jsonrpc.CodeInternalError, ErrClosing.Error(), ownmsg.ShuttingDownData)
}

func (s *toServerSink) forget() {
	s.admitted = false
	s.was = jsonrpc.Key{}
	s.m = jsonrpc.Message{}
}

// taken says that the server has taken the message.
func (s *toServerSink) taken() {
	s.forget()
	if s.stalled.Load() {
		s.stalled.Store(false)
	}
}

// Send copies a message to the server, or answers it in the server's place.
func (s *toServerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.stopped {
		return errStopped
	}
	if s.recv.begin() {
		ctx = s.graceCtx
	}
	defer s.recv.end()
	tried := s.isAdmitted(&m)
	if !tried {
		var ok bool
		if s.m, ok = s.admit(ctx, m); !ok {
			return nil
		}
		s.admitted = true
		s.was = m.Key()
	}
	if !tried && s.server.TrySend(s.m) {
		s.taken()
		return nil
	}
	err := s.server.Send(ctx, s.m)
	switch {
	case err == nil:
		s.taken()
		return nil
	case s.graceCtx.Err() != nil:
		if s.m.Kind() != jsonrpc.Request {
			return errStopped
		}
		s.stop()
		return nil // it was answered
	case ctx.Err() != nil: // the client has gone
		if s.m.Kind() == jsonrpc.Request {
			s.unsent = s.m.ID()
		}
		s.withdraw()
		return err
	}
	// A server that takes nothing more is as good as gone. Its
	// Receive says what became of it, if it still can say anything.
	m = s.m
	s.forget()
	s.reject(ctx, m, err)
	return nil
}

// admit enters a client's message into the ledger. It reports whether the
// server is to get it, and in what spelling.
func (p *pump) admit(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Request:
		c := p.newClientCall(m)
		switch err := p.toServer.open(c); err {
		case nil:
		case errShut:
			p.tooLate(ctx, c.id)
			return m, false
		case ownmsg.ErrTooManyRequests:
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), nil)
			return m, false
		case errTooMuch:
			p.answer(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), ownmsg.BusyData)
			return m, false
		default: // J3
			p.answer(ctx, c.id, jsonrpc.CodeInvalidRequest, err.Error(), nil)
			return m, false
		}
		p.arm(c)
	case jsonrpc.Notification:
		switch m.Method() {
		case ownmsg.Progress:
			return p.withToken(m, &p.toClient, 0)
		case ownmsg.Cancelled:
			if method, ok := p.toServer.method(m.CancelledID()); !ok || method == "initialize" { // J11, J12
				p.drop(m, "cancels no request that can be cancelled")
				return m, false
			}
			return closing(m, &p.toServer), true
		}
	case jsonrpc.Response:
		id, ok := p.toClient.answered(m.ID())
		if !ok {
			p.drop(m, "answers no request of the server")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	}
	return m, true
}

// newClientCall is newCall for a client's request, all of which the server's side may keep.
func (p *pump) newClientCall(m jsonrpc.Message) *call {
	c := newCall(m)
	switch size := m.Size(); {
	case c.method == "initialize": // who makes a lost session anew has to say it again
		c.size, c.lasts = c.size+size, true
	case c.method == ownmsg.Listen, size > budget.UncountedBytes:
		c.size += p.opts.kept(&m)
	}
	return c
}

// withToken returns a progress notification with the token as it was asked
// with. It starts the time-out of the request anew. Progress of a request that
// is over, or was cancelled, or of none, reaches nobody (J12, J13).
func (p *pump) withToken(m jsonrpc.Message, l *ledger, timeout time.Duration) (jsonrpc.Message, bool) {
	token := m.ProgressToken()
	asked, ok := l.progress(token, timeout)
	if !ok || token.IsZero() {
		p.drop(m, "progress of no request that is in progress")
		return m, false
	}
	if asked != token {
		m = m.WithProgressToken(asked)
	}
	return m, true
}

// closing takes the request that a cancellation is about out of the ledger, and
// returns the cancellation with its id as it was asked with.
func closing(m jsonrpc.Message, l *ledger) jsonrpc.Message {
	id := m.CancelledID()
	if asked, ok := l.close(id); ok && asked != id {
		return m.WithCancelledID(asked)
	}
	return m
}

// arm starts the time-out of a request (J8). A subscription has none.
func (p *pump) arm(c *call) {
	if p.opts.RequestTimeout <= 0 || c.method == ownmsg.Listen {
		return
	}
	p.toServer.arm(c, p.opts.RequestTimeout, func() {
		if c.method != "initialize" {
			p.cancelAtServer(p.ctx, c.id, "timed out")
		}
		if p.opts.TimedOut != nil {
			p.opts.TimedOut(LateCall{Ctx: p.ctx, Method: c.method, ID: c.id, Since: c.deadline.Add(-min(p.opts.RequestTimeout, maxWait) * maxRenewal)})
		}
		within := p.opts.RequestTimeout
		if !time.Now().Before(c.deadline) {
			within *= maxRenewal
		}
		p.answer(p.ctx, c.id, jsonrpc.CodeInternalError, fmt.Sprintf("the server did not answer within %v", within), ownmsg.TimedOutData)
	})
}

// cancelCall cancels a request because somebody who looks after the bridge wants it.
func (p *pump) cancelCall(id jsonrpc.ID) bool {
	return p.toServer.giveUp(id, func(c *call) {
		listen := c.method == ownmsg.Listen
		if listen {
			p.listensEnded.Store(true)
		}
		p.cancelAtServer(p.ctx, c.id, "cancelled on request")
		if listen { // ST13
			p.endListen(p.ctx, c.id)
			return
		}
		p.answer(p.ctx, c.id, jsonrpc.CodeInternalError, ownmsg.CancelledText, ownmsg.CancelledData)
	})
}

// reject answers a message that the server did not take. A server that is
// ending says so in the other direction in a moment, and better.
func (p *pump) reject(ctx context.Context, m jsonrpc.Message, err error) {
	if m.Kind() != jsonrpc.Request {
		p.drop(m, "the server did not take it")
		return
	}
	t := time.NewTimer(ownmsg.FinalSendTimeout)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if _, ok := p.toServer.close(m.ID()); ok {
		p.answer(ctx, m.ID(), jsonrpc.CodeInternalError, "the server did not take the request: "+err.Error(), ownmsg.ServerEndedData)
	}
}

// tooLate answers a request that the client has sent before it could know that the
// server has ended. fromClient waits for nothing else any more.
func (p *pump) tooLate(ctx context.Context, id jsonrpc.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownmsg.FinalSendTimeout)
	defer cancel()
	p.answer(ctx, id, jsonrpc.CodeInternalError, p.endText, p.endData)
}
