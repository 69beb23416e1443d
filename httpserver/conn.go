package httpserver

import (
	"context"
	"net"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/outq"
)

// takenKey is under which a request's context knows whether its client has taken
// all that was written.
type takenKey struct{}

// WithConn is what an http.Server has for ConnContext, so that Quick knows of its
// connections.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	taken := outq.Of(c)
	if taken == nil {
		return ctx
	}
	return context.WithValue(ctx, takenKey{}, taken)
}

// Quick returns a function that reports whether a small reply (outq.Small, with
// the header) does not wait for the client; nil: that cannot be told. Over HTTP/2
// it cannot: others share the connection.
func Quick(r *http.Request) func() bool {
	if r.ProtoMajor != 1 {
		return nil
	}
	taken, _ := r.Context().Value(takenKey{}).(func() bool)
	return taken
}
