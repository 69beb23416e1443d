package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Sink takes whole messages, in order. Any number of goroutines may call it, unless
// whoever hands it out says that calls do not overlap.
type Sink interface {
	// Send hands m on. It waits while the receiver does not take what came before:
	// backpressure, never an unbounded queue. It returns when m was written, or queued
	// where the transport answers each message on its own. After an error, which is
	// ctx's if ctx is done, m was not taken.
	Send(ctx context.Context, m jsonrpc.Message) error

	// TrySend is Send where that needs no waiting for anybody. False: nothing was done
	// with m, and Send is to be called, which also says what is wrong, if something is. A
	// Sink that cannot tell returns false. A message of a burst.Burst may be kept back until
	// that ends; whoever has begun the Burst ends it before it waits for anything. If what
	// is kept back cannot be written then, the Conn fails.
	TrySend(m jsonrpc.Message) bool
}

// A Conn carries whole messages to and from one MCP peer, in order. Nothing about it is
// optional, so whoever wraps one forwards all of it.
type Conn interface {
	Sink // to the peer

	// Receive hands what the peer sends to sink, one message at a time and in order,
	// until there is no more, and returns why: io.EOF after a clean end (the peer will
	// send nothing more, but can still be sent to until Close), another error when the
	// peer is gone, the error of ctx when ctx is done, the error of sink when that has
	// refused a message.
	//
	// sink is called in whichever goroutine brings a message, which need not be that
	// of Receive, but never by two at a time, and no more once Receive has returned. A
	// goroutine that must not wait calls TrySend, and where that is false leaves Send
	// to one that may; each message is offered again until sink has taken it. The ctx
	// of Send is done when Receive's is, and when the peer is known to be gone. sink
	// must not call Receive; it may call Send, and in its own Send also Close. TrySend of sink
	// must not Close the Conn, whose Close may wait for the very goroutine that calls TrySend;
	// only the Conns of a Mux allow that.
	//
	// One Receive at a time. After one that ctx or sink has ended there may be another:
	// it begins with the message that Send of sink has refused, even if ctx is done. So
	// a first message can be looked at before it is decided who serves a Conn (see
	// First), and is not lost when everything ends meanwhile. A sink has nothing but an error
	// to end a Receive with. So one that has served its only message may return an error all
	// the same, as that of Exchange does; it must know the message if it comes again.
	Receive(ctx context.Context, sink Sink) error

	// Close ends the conversation the way the transport does it, and says the reason
	// where the transport can say one; nil is an orderly end. It returns when every
	// goroutine and process that the Conn started has ended. It is idempotent, may be
	// called concurrently, and unblocks Receive and Send.
	Close(reason error) error
}

// A Dialer makes a Conn to a server: it starts a child, or connects to a URL.
// ctx bounds the dialling only, not the life of the Conn.
type Dialer interface {
	Dial(ctx context.Context) (Conn, error)
}

// A Handler serves one client. Listening transports call it once for each session or
// connection, and streamhttp once for each request of 2026-07-28. ServeConn returns when the
// conversation is over, soon after ctx is done: because the client has gone, its place goes
// to another, or everything shuts down. The transport closes client afterwards.
type Handler interface {
	ServeConn(ctx context.Context, client Conn) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, client Conn) error

// ServeConn implements Handler: it calls the function.
func (f HandlerFunc) ServeConn(ctx context.Context, client Conn) error { return f(ctx, client) }
