package hub

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// refusingHandler returns the Handler for clients that send lines over a socket (ServeLines) and cannot be served, because clients must
// authenticate or there are many servers: it answers each of their requests with an error that gives the reason.
func refusingHandler(o Options) bridge.Handler {
	why := noServerDialer("this socket leads to many servers, and a message does not say which one is meant: use HTTP over it, at /servers/NAME/mcp")
	if o.Guard.Authenticates() {
		why = "authentication is needed, and a message has no place for a token: use HTTP over this socket"
	}
	return bridge.Serve(why, bridge.PumpOptions{})
}

// noServerDialer is a Dialer that always fails. It is also the error: the text why there is no server.
type noServerDialer string

// Dial returns n as the error.
func (n noServerDialer) Dial(context.Context) (bridge.Conn, error) { return nil, n }

// Error returns why there is no server.
func (n noServerDialer) Error() string { return string(n) }

// PublicError returns the text that the client is told: the same as Error.
func (n noServerDialer) PublicError() string { return string(n) }
