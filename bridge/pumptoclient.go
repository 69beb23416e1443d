package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a Pump's direction from the server to the client.

// toClientSink is the Sink of the server's Conn in a Pump: it passes messages on to the client. Its calls do not
// overlap.
type toClientSink struct {
	*pump

	// entered: there is a message in outgoing, of which the ledgers know (admitToClient), and the client has not taken it
	// yet. The server's Conn offers it again.
	entered     bool
	originalKey jsonrpc.Key     // the Key that the message in outgoing had as it came from the server: tells isEntered whether it is offered again
	outgoing    jsonrpc.Message // the message that the client is to take, as it is to get it; zero: there is none
}

// TrySend implements Sink: it passes a message on if the client takes it at once. A request is left to Send: it may
// have to be refused, which may wait.
func (s *toClientSink) TrySend(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Request {
		return false
	}
	if !s.isEntered(&m) && !s.enter(s.ctx, &m) {
		return true
	}
	if !s.client.TrySend(s.outgoing) {
		return false
	}
	s.finishMessage()
	return true
}

// isEntered reports whether m is the message in outgoing, offered again. Another message in outgoing, which the
// server's Conn has taken back, is dropped.
func (s *toClientSink) isEntered(m *jsonrpc.Message) bool {
	if !s.entered || s.originalKey == m.Key() {
		return s.entered
	}
	s.reportDropped(s.outgoing, "the server has taken it back")
	s.finishMessage()
	return false
}

// enter has the ledgers take note of a message of the server (admitToClient), and puts what the client is to get into
// outgoing. false: the client does not get it. It is not inlined because all that writes to the client stands on the stack
// of Send: with a smaller one of that, a session needs 8 KiB less.
//
//go:noinline
func (s *toClientSink) enter(ctx context.Context, m *jsonrpc.Message) (ok bool) {
	if s.outgoing, ok = s.admitToClient(ctx, *m); ok {
		s.entered = true
		s.originalKey = m.Key()
	}
	return ok
}

// finishMessage forgets the outgoing message: the client has taken it, or it reaches nobody.
func (s *toClientSink) finishMessage() {
	if s.outgoing.Kind() == jsonrpc.Response {
		s.clientRequests.answerDelivered()
	}
	s.entered = false
	s.originalKey = jsonrpc.Key{}
	s.outgoing = jsonrpc.Message{}
}

// Send implements Sink: it passes a message on to the client. A message that the client does not take is dropped; only
// the end of ctx, with the server's Conn, makes Send return an error.
func (s *toClientSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if !s.isEntered(&m) && !s.enter(ctx, &m) {
		return nil
	}
	s.sendingToClient <- struct{}{}
	err := s.client.Send(ctx, s.outgoing)
	<-s.sendingToClient
	if err != nil {
		return s.finishFailedSend(ctx, err)
	}
	s.finishMessage()
	return nil
}

// finishFailedSend is called when the client has not taken the outgoing message: err says why. If the end of ctx has
// broken the Send off, the message is kept for sendLastOffered. Otherwise the client is gone, and the message is
// dropped.
func (s *toClientSink) finishFailedSend(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		return err // the server has ended meanwhile: sendLastOffered goes on with it
	}
	s.reportDropped(s.outgoing, "the client did not take it")
	if s.outgoing.Kind() == jsonrpc.Request {
		if id, ok := s.serverRequests.withdraw(s.outgoing.ID()); ok {
			s.refuseServerRequest(s.ctx, id, jsonrpc.CodeInternalError, "the client did not take the request")
		}
	}
	s.finishMessage()
	if s.ctx.Err() == nil {
		s.clientReceive.stop(err) // it takes nothing more: it is gone
	}
	return nil
}

// sendLastOffered is called when the server has ended: it sends the client the outgoing message, if there is one. A
// request is dropped: nobody would get its answer.
func (s *toClientSink) sendLastOffered(ctx context.Context) {
	if !s.entered {
		return
	}
	if s.outgoing.Kind() == jsonrpc.Request {
		s.serverRequests.withdraw(s.outgoing.ID())
		s.reportDropped(s.outgoing, "the server has ended")
	} else if err := s.client.Send(ctx, s.outgoing); err != nil {
		s.reportDropped(s.outgoing, "the client did not take it")
	}
	s.finishMessage()
}

// admitToClient has the ledgers take note of a server's message before the client gets it: a request is entered, and the
// request that a response answers, or a cancellation cancels, is taken out. It returns the message with the ids that the
// client knows. false: the client does not get it; a request was answered with an error, anything else reported as dropped.
// After a response that the client gets, answerDelivered must follow.
func (p *pump) admitToClient(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Response:
		id, ok := p.clientRequests.takeForAnswer(m.ID())
		if !ok {
			p.reportDropped(m, "answers no request that is in progress")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	case jsonrpc.Request:
		m = p.relatedAtClient(m)
		if err := p.serverRequests.add(newCall(m)); err != nil {
			p.refuseServerRequest(ctx, m.ID(), jsonrpc.CodeInternalError, err.Error())
			return m, false
		}
	case jsonrpc.Notification:
		m = p.relatedAtClient(m)
		switch m.Method() {
		case ownmsg.Progress:
			return p.acceptProgress(m, &p.clientRequests, p.opts.RequestTimeout)
		case ownmsg.Cancelled:
			if asked, ok := p.clientRequests.withdrawListen(m.CancelledID()); ok { // ST13
				return m.WithCancelledID(asked), true
			}
			m = acceptCancellation(m, p.serverRequests.withdraw)
		}
		if p.listensEnded.Load() && p.isSubscriptionOver(ownmsg.SubscriptionOf(m)) {
			p.reportDropped(m, "belongs to a subscription that is over")
			return m, false
		}
	}
	return m, true
}

// relatedAtClient returns m with the client's own id of the request that m is related to (Message.Related).
func (p *pump) relatedAtClient(m jsonrpc.Message) jsonrpc.Message {
	if id, ok := m.During(); ok {
		if asked := p.clientRequests.idAtClient(id); asked != id {
			return m.WithRelated(asked)
		}
	}
	return m
}

// isSubscriptionOver reports whether no subscription with this id is open any more; false for the zero ID.
func (p *pump) isSubscriptionOver(id jsonrpc.ID) bool {
	if id.IsZero() {
		return false
	}
	method, open := p.clientRequests.methodOf(id)
	return !open || method != ownmsg.Listen
}

// refuseServerRequest answers a server's request with an error in the client's place. It sends nothing if the server
// takes nothing (serverStalled).
func (p *pump) refuseServerRequest(ctx context.Context, id jsonrpc.ID, code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, ownmsg.FinalSendTimeout)
	defer cancel()
	m := jsonrpc.NewError(id, code, text, nil)
	if p.serverStalled.Load() {
		p.reportDropped(m, "the server takes nothing")
		return
	}
	if err := p.server.Send(ctx, m); err != nil {
		p.serverStalled.Store(true)
		p.reportDropped(m, "the server did not take it")
	}
}
