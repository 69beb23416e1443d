package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is what a Pump lets those do who bring it messages.

// admitter returns what copies a request to the server where it has come up, if
// the server takes it at once; nil: that is not known of this server.
func (p *pump) admitter() Taker {
	if p.try == nil {
		return nil
	}
	return func(m jsonrpc.Message, _ bool) (took, more bool) {
		if m.Kind() != jsonrpc.Request {
			return false, true
		}
		c := p.newCall(m)
		if p.toServer.open(c) != nil { // admit says what is wrong
			return false, true
		}
		p.arm(c)
		if !p.try(m) {
			p.admitted = true
			return false, true
		}
		p.hears()
		return true, true
	}
}

// taker returns what copies a message from the server to the client where it has
// come up: if it may wait all of them, else those that the client takes at once.
func (p *pump) taker(ctx context.Context, try func(jsonrpc.Message) bool) Taker {
	return func(m jsonrpc.Message, mayWait bool) (took, more bool) {
		if mayWait {
			p.pass(ctx, m)
			return true, true
		}
		if try == nil || m.Kind() == jsonrpc.Request { // may have to be refused, which may wait
			return false, true
		}
		m, ok := p.returned(ctx, m)
		switch {
		case !ok:
		case !try(m):
			p.entered = m
			return false, true
		case m.Kind() == jsonrpc.Response:
			p.toServer.settled()
		}
		return true, true
	}
}
