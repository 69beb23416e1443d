package upstream

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// bind returns the Conn of a modern client who has authenticated as one that
// gets requestState under its own name only (A6): a server that principals
// share cannot tell who comes back with one. unread: what is received has not
// been looked at.
func (s *Server) bind(ctx context.Context, client bridge.Conn, unread bool) bridge.Conn {
	if bridge.Principal(ctx) == "" {
		return client
	}
	return &bound{Conn: client, s: s, principal: bridge.Principal(ctx), unread: unread}
}

type bound struct {
	bridge.Conn
	s         *Server
	principal string
	unread    bool
}

func (b *bound) Recv(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := b.Conn.Recv(ctx)
		if err != nil || !b.unread {
			return m, err
		}
		m, ok, err := b.s.unbound(bridge.WithPrincipal(ctx, b.principal), b.Conn, m)
		if ok || err != nil {
			return m, err
		}
	}
}

// unbound returns a client's request with the server's own requestState. ok is
// false when it was answered, because that is not the client's.
func (s *Server) unbound(ctx context.Context, client bridge.Conn, m jsonrpc.Message) (_ jsonrpc.Message, ok bool, err error) {
	principal := bridge.Principal(ctx)
	if principal == "" || m.Kind() != jsonrpc.Request || !era.MayAskForInput(m.Method()) {
		return m, true, nil
	}
	var state []byte
	states, answers := 0, 0
	for member := range m.ParamsObject().Members() {
		switch member.Key {
		case "requestState":
			state = member.Value
			states++
		case "inputResponses":
			answers++
		}
	}
	if states > 1 || answers > 1 {
		// The server may take the one that was not looked at.
		return m, false, client.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidRequest, "requestState or inputResponses stands twice", nil))
	}
	text, has := jsonrpc.Text(state)
	if !has {
		return m, true, nil
	}
	own, err := s.sealer.Unbind(principal, text)
	if err != nil {
		return m, false, client.Send(ctx, jsonrpc.NewError(m.ID(), jsonrpc.CodeInvalidParams, "Invalid or expired requestState", nil))
	}
	return m.WithParams(jsonrpc.With(m.Params(), "requestState", jsonrpc.Quote(own))), true, nil
}

func (b *bound) Send(ctx context.Context, m jsonrpc.Message) error {
	return b.Conn.Send(ctx, b.bound(m))
}

// TrySender is what bridge.TrySender says.
func (b *bound) TrySender() func(jsonrpc.Message) bool {
	try := bridge.TrySender(b.Conn)
	if try == nil {
		return nil
	}
	return func(m jsonrpc.Message) bool { return try(b.bound(m)) }
}

// HungUp is what bridge.HungUp says.
func (b *bound) HungUp() func() error { return bridge.HungUp(b.Conn) }

// bound returns what the client gets of a message: requestState under its name.
func (b *bound) bound(m jsonrpc.Message) jsonrpc.Message {
	if m.Kind() == jsonrpc.Response && !m.IsError() {
		kind, _ := jsonrpc.Text(m.Lookup("result", "resultType"))
		if state, ok := jsonrpc.Text(m.Lookup("result", "requestState")); ok && kind == "input_required" {
			text := jsonrpc.Quote(b.s.sealer.Bind(b.principal, state))
			m = m.WithResult(jsonrpc.With(m.Result(), "requestState", text))
		}
	}
	return m
}

// CloseFor passes on why the Conn is closed, to one that can say it.
func (b *bound) CloseFor(err error) error {
	if c, ok := b.Conn.(interface{ CloseFor(err error) error }); ok {
		return c.CloseFor(err)
	}
	return b.Conn.Close()
}
