package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is a Pump's direction from the server to the client.

// toClientSink is what the server's Conn hands its messages to. Its calls do not overlap.
type toClientSink struct {
	*pump

	// A message that is in the ledger, while the client has not taken it: as the client is
	// to get it.
	entered bool
	was     jsonrpc.Key // of what the server has sent
	m       jsonrpc.Message
}

// TrySend copies a message to the client if the client takes it at once. A request may
// have to be refused, which may wait.
func (s *toClientSink) TrySend(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Request {
		return false
	}
	if !s.isEntered(&m) && !s.enter(s.ctx, &m) {
		return true
	}
	if !s.client.TrySend(s.m) {
		return false
	}
	s.done()
	return true
}

// isEntered reports whether m is in the ledger. What was, and does not come again, is
// dropped.
func (s *toClientSink) isEntered(m *jsonrpc.Message) bool {
	if !s.entered || s.was == m.Key() {
		return s.entered
	}
	s.drop(s.m, "the server has taken it back")
	s.done()
	return false
}

// enter enters a message into the ledger. false: the client does not get it. It is not inlined
// because all that writes to the client stands on the stack of Send: with a smaller one of
// that, a session needs 8 KiB less.
//
//go:noinline
func (s *toClientSink) enter(ctx context.Context, m *jsonrpc.Message) (ok bool) {
	if s.m, ok = s.returned(ctx, *m); ok {
		s.entered = true
		s.was = m.Key()
	}
	return ok
}

// done says that the message was handed on, or reaches nobody.
func (s *toClientSink) done() {
	if s.m.Kind() == jsonrpc.Response {
		s.toServer.settled()
	}
	s.entered = false
	s.was = jsonrpc.Key{}
	s.m = jsonrpc.Message{}
}

// Send copies a message to the client. Only the end of the server's Conn keeps it from
// being taken.
func (s *toClientSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if !s.isEntered(&m) && !s.enter(ctx, &m) {
		return nil
	}
	s.sending <- struct{}{}
	err := s.client.Send(ctx, s.m)
	<-s.sending
	if err != nil {
		return s.notTaken(ctx, err)
	}
	s.done()
	return nil
}

// notTaken is the end of a Send whose message the client has not taken.
func (s *toClientSink) notTaken(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		return err // the server has ended meanwhile: last goes on with it
	}
	s.drop(s.m, "the client did not take it")
	if s.m.Kind() == jsonrpc.Request {
		if id, ok := s.toClient.close(s.m.ID()); ok {
			s.refuse(s.ctx, id, jsonrpc.CodeInternalError, "the client did not take the request")
		}
	}
	s.done()
	if s.ctx.Err() == nil {
		s.recv.stop(err) // it takes nothing more: it is gone
	}
	return nil
}

// last hands on what the client was offered when the server ended, which is in the ledger no
// more. A request that nobody can be answered is dropped.
func (s *toClientSink) last(ctx context.Context) {
	if !s.entered {
		return
	}
	if s.m.Kind() == jsonrpc.Request {
		s.toClient.close(s.m.ID())
		s.drop(s.m, "the server has ended")
	} else if err := s.client.Send(ctx, s.m); err != nil {
		s.drop(s.m, "the client did not take it")
	}
	s.done()
}

// returned enters a server's message into the ledger. It reports whether the
// client is to get it, and in what spelling. A response that it is to get
// must be settled afterwards.
func (p *pump) returned(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch m.Kind() {
	case jsonrpc.Response:
		id, ok := p.toServer.take(m.ID())
		if !ok {
			p.drop(m, "answers no request that is in progress")
			return m, false
		}
		if id != m.ID() {
			m = m.WithID(id)
		}
	case jsonrpc.Request:
		if err := p.toClient.open(newCall(m)); err != nil {
			p.refuse(ctx, m.ID(), jsonrpc.CodeInternalError, err.Error())
			return m, false
		}
	case jsonrpc.Notification:
		switch m.Method() {
		case ownmsg.Progress:
			return p.withToken(m, &p.toServer, p.opts.RequestTimeout)
		case ownmsg.Cancelled:
			if asked, ok := p.toServer.endListen(m.CancelledID()); ok { // ST13
				return m.WithCancelledID(asked), true
			}
			m = closing(m, &p.toClient)
		}
		if p.listensEnded.Load() && p.isOver(ownmsg.SubscriptionOf(m)) {
			p.drop(m, "belongs to a subscription that is over")
			return m, false
		}
	}
	return m, true
}

// isOver reports whether a subscription has ended; zero: it is none.
func (p *pump) isOver(id jsonrpc.ID) bool {
	if id.IsZero() {
		return false
	}
	method, open := p.toServer.method(id)
	return !open || method != ownmsg.Listen
}

// refuse sends the server an error in the client's place.
func (p *pump) refuse(ctx context.Context, id jsonrpc.ID, code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, ownmsg.FinalSendTimeout)
	defer cancel()
	m := jsonrpc.NewError(id, code, text, nil)
	if p.stalled.Load() {
		p.drop(m, "the server takes nothing")
		return
	}
	if err := p.server.Send(ctx, m); err != nil {
		p.stalled.Store(true)
		p.drop(m, "the server did not take it")
	}
}
