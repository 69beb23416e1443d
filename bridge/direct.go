package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is what a Conn may have beside the methods that all have, so that a
// message need not be handed from one goroutine to the next. On a quick call
// that costs more than all the rest. A Conn that wraps another passes on what
// that has; one that does not know these methods works all the same.

// TrySender returns a function that hands a message to the peer of c as Send
// does, if that needs no waiting for anybody; false: it has done nothing, and
// Send is to be called. It is nil when c has no such thing. Any number of
// goroutines may call it.
//
// A Conn has it by a method TrySender() func(jsonrpc.Message) bool, which
// always returns nil, or never.
func TrySender(c PullConn) func(m jsonrpc.Message) bool {
	if t, ok := c.(interface {
		TrySender() func(jsonrpc.Message) bool
	}); ok {
		return t.TrySender()
	}
	return nil
}

// SendsItself reports whether c.Send does all its work in the caller's goroutine, so
// that who may wait gains nothing by trying first.
//
// A Conn says so by a method SendsItself() bool, which always returns the same.
func SendsItself(c PullConn) bool {
	s, ok := c.(interface{ SendsItself() bool })
	return ok && s.SendsItself()
}

// HungUp returns a function that tells of the end of c's peer while nobody receives:
// nil as long as nothing is known of that, io.EOF once the peer sends nothing more
// than what waits to be received, and another error once it is gone. It does not
// wait, and any number of goroutines may call it. nil: c knows nothing of it.
//
// A Conn has it by a method HungUp() func() error, which always returns nil, or never.
func HungUp(c PullConn) func() error {
	if h, ok := c.(interface{ HungUp() func() error }); ok {
		return h.HungUp()
	}
	return nil
}

// Feed hands all that c receives to sink, until there is no more, and returns
// why: what Recv would have. When ctx is done it may close c. Nobody may call
// Recv meanwhile, or afterwards. sink is called by one goroutine at a time, but
// not always by the same; and, when ctx was done, until c is closed.
//
// A Conn that has a method Feed(context.Context, func(jsonrpc.Message)) error
// calls sink wherever a message has come up.
func Feed(ctx context.Context, c PullConn, sink func(m jsonrpc.Message)) error {
	if f, ok := c.(interface {
		Feed(context.Context, func(jsonrpc.Message)) error
	}); ok {
		return f.Feed(ctx, sink)
	}
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			return err
		}
		sink(m)
	}
}

// A Poller is a Conn whose messages wait for Recv in a queue of its own.
type Poller interface {
	PullConn

	// Poll returns what Recv would return at once; ok is false if Recv would
	// wait. It counts as a call of Recv.
	Poll() (m jsonrpc.Message, err error, ok bool)

	// Wake makes the Conn tell w whenever Poll may have something to return that
	// it had not before. It is to be called before Recv and Poll are; Recv is of
	// no use afterwards.
	Wake(w *Waiter)
}
