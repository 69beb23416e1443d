package hub

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// refusal returns the Handler of clients that cannot be served in lines: each
// of their requests is answered with the reason.
func refusal(o Options) bridge.Handler {
	why := noServer("this socket leads to many servers, and a message does not say which one is meant: use HTTP over it, at /servers/NAME/mcp")
	if o.Guard.Authenticates() {
		why = "authentication is needed, and a message has no place for a token: use HTTP over this socket"
	}
	return bridge.Serve(why, bridge.PumpOptions{})
}

// noServer is a Dialer that says why there is no server.
type noServer string

func (n noServer) Dial(context.Context) (bridge.Conn, error) { return nil, n }
func (n noServer) Error() string                             { return string(n) }

// PublicError is what the client is told.
func (n noServer) PublicError() string { return string(n) }
