package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/say"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type passedKey struct{}

// WithPassed returns ctx for the service of one request (Exchange) whose bytes
// are counted as long as they are kept: passed is called, by the goroutine that
// serves it, when the server has the request, with how many of them are kept until
// it is answered. If it is not called all of them are.
func WithPassed(ctx context.Context, passed func(kept int)) context.Context {
	return context.WithValue(ctx, passedKey{}, passed)
}

// passed says that the request of ctx has been passed on to server.
func passed(ctx context.Context, server PullConn, m *jsonrpc.Message) {
	if f, ok := ctx.Value(passedKey{}).(func(int)); ok {
		f(kept(server, m))
	}
}

// kept returns how many bytes of a request server's side keeps until it is answered.
func kept(server PullConn, m *jsonrpc.Message) int {
	switch {
	case m.Method() == say.Listen:
		return min(m.Size(), era.MaxListen)
	case Keeps(server):
		return m.Size()
	}
	return 0
}

// Keeps reports whether server keeps requests until they are answered, as one does
// that translates them: it may have to send them again. A Conn says so by a method
// Keeps() bool; one that wraps another has a method Unwrap.
func Keeps(server PullConn) bool {
	for {
		switch c := server.(type) {
		case interface{ Keeps() bool }:
			return c.Keeps()
		case interface{ Unwrap() PullConn }:
			server = c.Unwrap()
		default:
			return false
		}
	}
}
