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

// clientReceive ends a Pump's Receive from the client. A Send to the server that is under way then goes on until its
// own ctx ends.
type clientReceive struct {
	ctx     context.Context         // the ctx of the Receive from the client
	cancel  context.CancelCauseFunc // ends ctx, with the reason as its cause
	stopped atomic.Bool             // stop was called: nothing new is taken; set under mu

	mu        sync.Mutex // guards sending and stopCause
	sending   bool       // a Send to the server goes on
	stopCause error      // why nothing new is taken; nil: stop was not called
}

// init makes it ready for a Receive that ends with ctx at the latest.
func (r *clientReceive) init(ctx context.Context) { r.ctx, r.cancel = context.WithCancelCause(ctx) }

// stop has nothing more taken from the client, for the reason why; only the first call counts. The Receive ends at
// once, or after the Send to the server that goes on.
func (r *clientReceive) stop(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopCause == nil {
		r.stopCause = why
		r.stopped.Store(true)
	}
	if !r.sending {
		r.cancel(r.stopCause)
	}
}

// beginSend is called before a Send to the server that may wait. stopped: stop was called before; the message at hand
// came before that, and is still sent.
func (r *clientReceive) beginSend() (stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sending = true
	return r.stopCause != nil
}

// endSend is called after the Send that beginSend has announced. If stop was called meanwhile, the Receive ends now.
func (r *clientReceive) endSend() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sending = false
	if r.stopCause != nil {
		r.cancel(r.stopCause)
	}
}

// done returns a channel that is closed once nothing more is received from the client; cause says then why.
func (r *clientReceive) done() <-chan struct{} { return r.ctx.Done() }

// cause returns why the Receive has ended; nil: it has not.
func (r *clientReceive) cause() error { return context.Cause(r.ctx) }

// copyFromClient passes on what the client sends to the server until the client or the server ends, or Pump's ctx is done,
// and returns why it has stopped. What it waits for ends with graceCtx.
func (p *pump) copyFromClient(graceCtx context.Context) error {
	s := &toServerSink{pump: p, graceCtx: graceCtx}
	return s.finishReceive(p.client.Receive(p.clientReceive.ctx, s))
}

// finishReceive is called when the client's Receive has returned err. It deals with a request that the server has not
// taken, and returns why nothing more comes from the client. It is not inlined into copyFromClient, because a goroutine
// that waits there should need little stack: there are as many as there are sessions.
//
//go:noinline
func (s *toServerSink) finishReceive(err error) error {
	p := s.pump
	if p.clientReceive.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = p.clientReceive.cause()
	}
	if isOrderlyEnd(err) {
		s.stop()
	} else if err != errServerEnded {
		s.withdraw()
	}
	if !s.unsentRequestID.IsZero() && err == errHungUp { // it may be listening still
		p.answerWithError(s.graceCtx, s.unsentRequestID, jsonrpc.CodeInternalError, err.Error(), ownmsg.TimedOutData)
	}
	return err
}

// toServerSink is the Sink of the client's Conn in a Pump: it passes messages on to the server. Its calls do not
// overlap.
type toServerSink struct {
	*pump
	graceCtx context.Context // the ctx of a Send to the server that goes on after Pump's ctx is done

	// admitted: there is a message in outgoing, of which the ledgers know (admitToServer), and the server has not taken it.
	// The client's Conn offers it again, unless it has withdrawn it.
	admitted    bool
	originalKey jsonrpc.Key     // the Key of the message in outgoing as the client has sent it
	outgoing    jsonrpc.Message // the message that the server is to take, as it is to get it; zero: there is none

	stopped bool // stop was called: nothing is taken any more

	unsentRequestID jsonrpc.ID // the client's id of a request that the server had not taken when the client had gone; zero: none
}

// TrySend implements Sink: it passes a message on if the server takes it at once. What has to be answered by the Pump
// itself is left to Send.
func (s *toServerSink) TrySend(m jsonrpc.Message) bool {
	if s.clientReceive.stopped.Load() { // nothing new is taken
		return false
	}
	if !s.isAdmitted(&m) {
		if admitted, taken := s.tryAdmit(&m); !admitted {
			return taken
		}
	}
	if !s.server.TrySend(s.outgoing) {
		return false
	}
	s.clearTaken()
	return true
}

// tryAdmit makes m the message in outgoing (admitted). If it does not, taken says why not: true, the server does not get
// m, and nothing is left to do; false, Send has to answer m.
//
// It is no part of TrySend, which runs deep in the stack of an HTTP connection's goroutine: with more stack than 8 KiB, Go
// copies that to a larger one for many requests.
func (s *toServerSink) tryAdmit(m *jsonrpc.Message) (admitted, taken bool) {
	if m.Kind() == jsonrpc.Request {
		c := s.newClientCall(*m)
		if s.clientRequests.add(c) != nil { // admitToServer says what is wrong
			return false, false
		}
		s.startTimeout(c)
		s.outgoing = c.withServerID(*m)
	} else {
		outgoing, ok := s.admitToServer(s.graceCtx, *m)
		if !ok {
			return false, true
		}
		s.outgoing = outgoing
	}
	s.admitted = true
	s.originalKey = m.Key()
	return true, false
}

// isAdmitted reports whether m is the message in outgoing, offered again. Another message in outgoing, which the
// client's Conn has withdrawn, is forgotten.
func (s *toServerSink) isAdmitted(m *jsonrpc.Message) bool {
	if !s.admitted || s.originalKey == m.Key() {
		return s.admitted
	}
	s.withdraw()
	return false
}

// withdraw forgets the outgoing message, which the server never had: a request leaves the ledger without an answer.
func (s *toServerSink) withdraw() {
	if s.outgoing.Kind() == jsonrpc.Request {
		s.clientRequests.withdraw(s.outgoing.ID())
	}
	s.clearOutgoing()
}

// stop makes the sink take nothing more, and answers a request in outgoing, which the server will not get, with an
// error, unless it was answered already or the conversation is over.
func (s *toServerSink) stop() {
	s.stopped = true
	if s.outgoing.Kind() != jsonrpc.Request {
		return
	}
	id, owed := s.clientRequests.withdraw(s.outgoing.ID())
	s.clearOutgoing()
	if !owed || s.ctx.Err() != nil { // it was answered, or nobody waits for the client any more
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), ownmsg.FinalSendTimeout)
	defer cancel()
	s.answerWithError(ctx, id, jsonrpc.CodeInternalError, ErrClosing.Error(), ownmsg.ShuttingDownData)
}

// clearOutgoing forgets the outgoing message: the server has it, or it reaches nobody.
func (s *toServerSink) clearOutgoing() {
	s.admitted = false
	s.originalKey = jsonrpc.Key{}
	s.outgoing = jsonrpc.Message{}
}

// clearTaken is called when the server has taken the outgoing message, which shows that it takes something again
// (serverStalled).
func (s *toServerSink) clearTaken() {
	s.clearOutgoing()
	if s.serverStalled.Load() {
		s.serverStalled.Store(false)
	}
}

// Send implements Sink: it passes a message on to the server. A request that may not pass, or that the server does not
// take, is answered with an error, and Send returns nil. Its error says that the client is gone or nothing more is
// taken.
func (s *toServerSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if s.stopped {
		return errStopped
	}
	if s.clientReceive.beginSend() {
		ctx = s.graceCtx
	}
	defer s.clientReceive.endSend()
	tried := s.isAdmitted(&m)
	if !tried {
		outgoing, ok := s.admitToServer(ctx, m)
		if !ok {
			return nil
		}
		s.outgoing = outgoing // not before: stop withdraws what has its id, which may be another request
		s.admitted = true
		s.originalKey = m.Key()
	}
	if !tried && s.server.TrySend(s.outgoing) {
		s.clearTaken()
		return nil
	}
	err := s.server.Send(ctx, s.outgoing)
	switch {
	case err == nil:
		s.clearTaken()
		return nil
	case s.graceCtx.Err() != nil:
		if s.outgoing.Kind() != jsonrpc.Request {
			return errStopped
		}
		s.stop()
		return nil // it was answered
	case ctx.Err() != nil: // the client has gone
		if s.outgoing.Kind() == jsonrpc.Request {
			s.unsentRequestID = s.clientRequests.idAtClient(s.outgoing.ID())
		}
		s.withdraw()
		return err
	}
	// A server that takes nothing more is as good as gone. Its
	// Receive says what became of it, if it still can say anything.
	m = s.outgoing
	s.clearOutgoing()
	s.answerUntaken(ctx, m, err)
	return nil
}

// admitToServer has the ledgers take note of a client's message before the server gets it: a request is entered, and the
// request that a response answers, or a cancellation cancels, is taken out. It returns the message with the ids that the
// server knows. false: the server does not get it; a request was answered with an error, anything else reported as dropped.
func (p *pump) admitToServer(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Request:
		c := p.newClientCall(m)
		switch err := p.clientRequests.add(c); err {
		case nil:
		case errOtherSideGone:
			p.answerAfterServerEnd(ctx, c.id)
			return m, false
		case ownmsg.ErrTooManyRequests:
			p.answerWithError(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), nil)
			return m, false
		case errOverBudget:
			p.answerWithError(ctx, c.id, jsonrpc.CodeInternalError, err.Error(), ownmsg.BusyData)
			return m, false
		default: // J3
			p.answerWithError(ctx, c.id, jsonrpc.CodeInvalidRequest, err.Error(), nil)
			return m, false
		}
		p.startTimeout(c)
		return c.withServerID(m), true
	case jsonrpc.Notification:
		switch m.Method() {
		case ownmsg.Progress:
			return p.acceptProgress(m, &p.serverRequests, 0)
		case ownmsg.Cancelled:
			if method, ok := p.clientRequests.methodOf(m.CancelledID()); !ok || method == "initialize" { // J11, J12
				p.reportDropped(m, "cancels no request that can be cancelled")
				return m, false
			}
			return acceptCancellation(m, p.clientRequests.cancel), true
		}
	case jsonrpc.Response:
		id, ok := p.serverRequests.removeAnswered(m.ID())
		if !ok {
			p.reportDropped(m, "answers no request of the server")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	}
	return m, true
}

// newClientCall returns a new call for the client's request m. Its heldBytes counts, beside what every call takes, what the
// server's side keeps of a long request or a subscription, and the whole of an initialize, also after its answer.
func (p *pump) newClientCall(m jsonrpc.Message) *call {
	c := newCall(m)
	switch size := m.Size(); {
	case c.method == "initialize": // who makes a lost session anew has to say it again
		c.heldBytes, c.heldAfterAnswer = c.heldBytes+size, true
	case c.method == ownmsg.Listen, size > budget.UncountedBytes:
		c.heldBytes += p.opts.keptBytes(&m)
	}
	return c
}

// acceptProgress returns m, the progress of a request in l, with the token as the request was asked with. l is
// clientRequests for progress of the server, and serverRequests for that of the client. It sets the time-out of the
// request, if it has one, to timeout from now, but not beyond latestDeadline; timeout is 0 for serverRequests, which have
// none. false: there is no such request any more, nor a task that it has begun, and m was dropped (J12, J13).
func (p *pump) acceptProgress(m jsonrpc.Message, l *ledger, timeout time.Duration) (jsonrpc.Message, bool) {
	token := m.ProgressToken()
	asked, ok := l.renewTimeout(token, timeout)
	if !ok || token.IsZero() {
		p.reportDropped(m, "progress of no request that is in progress")
		return m, false
	}
	if asked != token {
		m = m.WithProgressToken(asked)
	}
	return m, true
}

// withServerID returns m, the request of the call, with the id that the server is to know.
func (c *call) withServerID(m jsonrpc.Message) jsonrpc.Message {
	if c.serverID.IsZero() {
		return m
	}
	return m.WithID(c.serverID)
}

// acceptCancellation calls withdraw, which takes a request out of a ledger, with the id in the cancellation m, and
// returns m with the id that withdraw has returned: that by which the side knows it that was asked. If there is no such
// request, m stays as it is.
func acceptCancellation(m jsonrpc.Message, withdraw func(jsonrpc.ID) (jsonrpc.ID, bool)) jsonrpc.Message {
	id := m.CancelledID()
	if asked, ok := withdraw(id); ok && asked != id {
		return m.WithCancelledID(asked)
	}
	return m
}

// startTimeout starts the time-out of a client's request, if there is a RequestTimeout (J8): once it has passed, the request
// is cancelled at the server (but for initialize), and answered with an error. A subscription has none.
func (p *pump) startTimeout(c *call) {
	if p.opts.RequestTimeout <= 0 || c.method == ownmsg.Listen {
		return
	}
	p.clientRequests.startTimeout(c, p.opts.RequestTimeout, func() {
		if c.method != "initialize" {
			p.cancelAtServer(p.ctx, c.idAtServer(), "timed out")
		}
		if p.opts.TimedOut != nil {
			p.opts.TimedOut(PendingCall{Ctx: p.ctx, Method: c.method, ID: c.id, Since: c.latestDeadline.Add(-min(p.opts.RequestTimeout, maxRenewableTimeout) * maxTimeoutFactor)})
		}
		within := p.opts.RequestTimeout
		if !time.Now().Before(c.latestDeadline) {
			within *= maxTimeoutFactor
		}
		p.answerWithError(p.ctx, c.id, jsonrpc.CodeInternalError, fmt.Sprintf("the server did not answer within %v", within), ownmsg.TimedOutData)
	})
}

// cancelCall implements canceller: it cancels a client's request, for whoever looks after the bridge, at the server,
// and answers the client.
func (p *pump) cancelCall(id jsonrpc.ID) bool {
	return p.clientRequests.giveUp(id, func(c *call) {
		listen := c.method == ownmsg.Listen
		if listen {
			p.listensEnded.Store(true)
		}
		p.cancelAtServer(p.ctx, c.idAtServer(), "cancelled on request")
		if listen { // ST13
			p.endListen(p.ctx, c.id)
			return
		}
		p.answerWithError(p.ctx, c.id, jsonrpc.CodeInternalError, ownmsg.CancelledText, ownmsg.CancelledData)
	})
}

// answerUntaken deals with a client's message m that the server did not take because of err. A request is answered with an
// error, after a moment: if the server is ending, its Receive says so meanwhile, and the request is answered with that
// error, which says more. Any other message is reported as dropped.
func (p *pump) answerUntaken(ctx context.Context, m jsonrpc.Message, err error) {
	if m.Kind() != jsonrpc.Request {
		p.reportDropped(m, "the server did not take it")
		return
	}
	t := time.NewTimer(ownmsg.FinalSendTimeout)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if id, ok := p.clientRequests.withdraw(m.ID()); ok {
		p.answerWithError(ctx, id, jsonrpc.CodeInternalError, "the server did not take the request: "+err.Error(), ownmsg.ServerEndedData)
	}
}

// answerAfterServerEnd answers a client's request that has come after the server's end with the error that says so.
func (p *pump) answerAfterServerEnd(ctx context.Context, id jsonrpc.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownmsg.FinalSendTimeout)
	defer cancel()
	p.answerWithError(ctx, id, jsonrpc.CodeInternalError, p.serverEndText, p.serverEndData)
}
