package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// passedKey is the key of WithPassed's function in a context.
type passedKey struct{}

// WithPassed returns ctx for the service of one request (Exchange), for a caller that counts the request's bytes as
// long as they are kept. passed is called by the goroutine that serves the request, once the server has the request or
// will not get it: kept is how many of its bytes are still kept, until the answer. For a request of no more than
// budget.UncountedBytes passed is not called, and all its bytes count as kept. The client's Conn lets go of the request
// in passed, and so does what wraps the Conn (Intercept): nobody wants it again.
func WithPassed(ctx context.Context, passed func(kept int)) context.Context {
	return context.WithValue(ctx, passedKey{}, passed)
}

// reportPassed calls the function of WithPassed, if ctx has one, because the server has the request m, or will not get it.
func (o *PumpOptions) reportPassed(ctx context.Context, m *jsonrpc.Message) {
	if f, ok := ctx.Value(passedKey{}).(func(int)); ok {
		f(o.keptBytes(m))
	}
}

// keptBytes returns how many bytes of the request m the server's side keeps until it is answered.
func (o *PumpOptions) keptBytes(m *jsonrpc.Message) int {
	switch {
	case m.Method() == ownmsg.Listen:
		return min(m.Size(), era.MaxListen)
	case o.KeepsRequests != nil && o.KeepsRequests():
		return m.Size()
	}
	return 0
}
