// Package bridge copies messages between MCP peers. Every transport turns its
// traffic into a Conn; Pump copies between a client's Conn and a server's.
// The package knows no transport.
package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Conn carries whole messages to and from one MCP peer, in order.
//
// One goroutine at a time may call Recv; any number may call Send. Both
// return when their ctx is done, and a transport may then close the Conn if
// it cannot otherwise keep the framing whole.
type Conn interface {
	// Recv returns the next message from the peer. It returns io.EOF after a
	// clean end: the peer will send nothing more but can still be sent to,
	// until Close. Any other error means that the peer is gone.
	Recv(ctx context.Context) (jsonrpc.Message, error)

	// Send hands m to the peer. It waits while the peer does not take what
	// was sent before: backpressure, never an unbounded queue. It returns when the
	// message was written, or queued where the transport answers each message on its own.
	Send(ctx context.Context, m jsonrpc.Message) error

	// Close ends the conversation the way the transport does it and returns
	// when every goroutine and process that the Conn started has ended. It is
	// idempotent, may be called concurrently, and unblocks Recv and Send.
	Close() error
}

// A Dialer makes a Conn to a server: it starts a child, or connects to a URL.
// ctx bounds the dialling only, not the life of the Conn.
type Dialer interface {
	Dial(ctx context.Context) (Conn, error)
}

// A Handler serves one client. Listening transports call it once per session,
// in a goroutine of its own; it returns when the conversation is over, soon
// after ctx is done: because the client has gone, or everything shuts down. The
// transport closes client afterwards.
type Handler interface {
	ServeConn(ctx context.Context, client Conn) error
}

// HandlerFunc makes a Handler of a function.
type HandlerFunc func(ctx context.Context, client Conn) error

// ServeConn calls f.
func (f HandlerFunc) ServeConn(ctx context.Context, client Conn) error { return f(ctx, client) }
