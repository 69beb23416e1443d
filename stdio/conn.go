package stdio

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/clientstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// defaultMaxMessageSize is the longest line that is received, in bytes, unless Options
// say otherwise (J9).
const defaultMaxMessageSize = 64 << 20

// maxBatch is how many messages a batch of a client may have (LI9).
const maxBatch = 50

// PeerRole says whether the peer of a Conn is a server or a client: what is done about
// invalid input differs.
type PeerRole uint8

const (
	// Server: the peer is a server. Many print banners and logs between their
	// messages; such lines are skipped (ST4).
	Server PeerRole = iota
	// Client: the peer is a client. Whatever it writes is meant as a message; it is
	// told what was wrong with it (J4).
	Client
)

// Options tune a Conn. The zero value works.
type Options struct {
	// Peer says whether the other end is a server or a client.
	Peer PeerRole

	// MaxMessageSize is the longest line that is received, in bytes; 0 or less means
	// 64 MiB. A longer one is thrown away as it arrives, but
	// whoever waits for it gets an error. What is sent has no limit.
	MaxMessageSize int

	// MaxDepth is how many levels of objects and arrays a message that is received
	// may have (J14); 0 means jsonrpc.DefaultMaxDepth, negative any number.
	MaxDepth int

	// AcceptBatch says whether a client may send arrays now (ST5: only when
	// 2025-03-26 was negotiated). nil means that the Conn finds out: the answer
	// to initialize passes through Send. Servers always may. Receive calls it.
	AcceptBatch func() bool

	// OnNoise is told of each line, or element of a batch, that is not handed on
	// because it was no valid message or too long: the size of its line in bytes and
	// what was wrong, never its content. Of empty lines it is not told. Receive calls it,
	// so it must not wait for the Conn; nil: nobody is told.
	OnNoise func(size int, reason string)
}

// Conn is a bridge.Conn over two byte streams. An array is received as the
// single messages in it; arrays are never sent.
type Conn struct {
	opts         Options      // NewConn's, with the defaults filled in
	in           incoming     // the part that receives
	out          outgoing     // the part that sends
	client       clientState  // what was learnt of the client; not used if the peer is a server
	skippedCount atomic.Int64 // how many lines, or elements of a batch, were no valid message or too long, and not handed on

	refusals refusals     // error responses that wait for a server to read them
	end      ending       // how and when the conversation ends
	closer   func() error // the caller's, which ends the streams; runs once, however often it is called
}

// incoming is the part of a Conn that receives from the peer.
type incoming struct {
	src source // where the bytes come from

	// mu is held while a line is read and taken apart, never while a message is
	// handed on. The closer holds mu while it reads the rest of the stream.
	mu           sync.Mutex
	lines        lines             // cuts the bytes into lines
	pending      []jsonrpc.Message // received messages that no Sink has taken yet, in order
	firstRefused bool              // a Sink has refused pending[0]: the next Receive offers it again, even if the ctx of that Receive is done
}

// clientState is what a Conn to a client has learnt from the messages that passed.
type clientState struct {
	// the protocol version that was negotiated: whether the client may send batches
	revision       clientstate.NegotiatedVersion
	serverRequests clientstate.ServerRequests // the server's requests that the client has not answered
}

// NewConn returns a Conn that reads lines from r and writes lines to w. Close
// calls closer, once, which must end what r and w lead to; nil does nothing.
//
// If r and w have working deadlines (pipes, sockets and terminals of the os
// and net packages), Receive reads in the caller's goroutine, and a context ends
// a blocked Receive or Send at once. Otherwise a goroutine reads r from the first
// Receive on, Close waits for it, and closer must make a blocked r.Read return.
//
// If the peer is a server and w a pipe, nobody else may write to the pipe.
//
// Send makes one write of each message up to 64 KiB. When its context ends in
// the middle of a message the peer would take the next one for the rest of it:
// the Conn then fails with ErrCutOff, as if it was closed; Close is still needed.
func NewConn(r io.Reader, w io.Writer, closer func() error, opts Options) *Conn {
	return newConn(r, w, closer, opts, false)
}

// newConn makes a Conn that reads lines from r and writes lines to w (NewConn). mayAbandon says that Close need not wait
// for a blocked read of r that nothing can end.
func newConn(r io.Reader, w io.Writer, closer func() error, opts Options, mayAbandon bool) *Conn {
	if opts.MaxMessageSize <= 0 {
		opts.MaxMessageSize = defaultMaxMessageSize
	}
	opts.MaxDepth = cmp.Or(opts.MaxDepth, jsonrpc.DefaultMaxDepth)
	if closer == nil {
		closer = func() error { return nil }
	}
	c := &Conn{opts: opts, closer: sync.OnceValue(closer)}
	c.end.init()
	c.in.src = newSource(r, mayAbandon)
	c.in.lines = lines{src: c.in.src, max: opts.MaxMessageSize, burst: new(burst.Burst)}
	c.out = outgoing{dest: newDestination(w, c.abort), try: newTryWriter(w, opts.Peer == Server), writeTurn: make(chan struct{}, 1)}
	return c
}

// Receive implements bridge.Conn. It calls the Send of sink, which may wait, and
// reads nothing meanwhile. Messages that were read together it offers to TrySend first. The end of the stream is io.EOF.
func (c *Conn) Receive(ctx context.Context, sink bridge.Sink) error {
	return c.receive(ctx, sink, nil, nil)
}

// receive does the work of Receive. hungUp is the peerEndErr of bridge.NewStallWatch. explain is given ctx and the
// error with which the stream has ended, and returns that of Receive. Both may be nil.
func (c *Conn) receive(ctx context.Context, sink bridge.Sink, hungUp func() error, explain func(context.Context, error) error) error {
	sendCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.end.closing, cancel)()
	watch := bridge.NewStallWatch(sendCtx, hungUp)
	defer watch.Stop()
	defer c.in.lines.burst.End()
	for {
		err := c.awaitLine(ctx)
		if err == nil {
			var bySink bool
			if err, bySink = c.deliverFirst(ctx, sink, watch); err == nil {
				continue
			}
			if bySink {
				return err
			}
		}
		if explain != nil {
			err = explain(ctx, err)
		}
		return err
	}
}

// awaitLine waits until there is a line or a pending message. The error is that of
// Receive: how the stream or the Conn has ended, or ctx's. What is done between two
// waits is in functions of its own: a goroutine that waits here should need little
// stack, as there are as many as there are sessions.
func (c *Conn) awaitLine(ctx context.Context) error {
	c.in.lock()
	defer c.in.mu.Unlock()
	for {
		if err := c.end.endError(ctx); err != nil && !(c.in.firstRefused && err == ctx.Err()) {
			return err
		}
		if len(c.in.pending) > 0 {
			return nil
		}
		if err := c.in.lines.await(ctx); err == nil || !errors.Is(err, errInterrupted) {
			return c.receiveError(ctx, err)
		}
	}
}

// lock takes mu, for Receive. The Burst ends before it waits: the closer may hold mu for long.
func (in *incoming) lock() {
	if !in.mu.TryLock() {
		in.lines.burst.End()
		in.mu.Lock()
	}
}

// receiveError returns the error of Receive for err, an error of lines: the reason for
// the end, where the Conn or ctx has ended. nil for nil. A client for whose line there
// is no memory is told so, and the Conn ends.
func (c *Conn) receiveError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if err == errBudgetExhausted {
		c.endWithReason(err)
	}
	if why := c.end.endError(ctx); why != nil {
		return why // closing a file makes many errors
	}
	return err
}

// deliverFirst takes the first message, out of the line that awaitLine has found or
// out of pending, and hands it to sink; a line may have none. A message that sink refuses
// stays the first. bySink says that err is that of sink, or of ctx while sink had the message.
// deliverFirst is not inlined into receive, because a goroutine that waits there for a line
// should need little stack.
//
//go:noinline
func (c *Conn) deliverFirst(ctx context.Context, sink bridge.Sink, watch *bridge.StallWatch) (err error, bySink bool) {
	m, more, err := c.takeFirst(ctx)
	if err != nil || m.Kind() == jsonrpc.Invalid {
		return err, false
	}
	if c.deliverInBurst(sink, m, more) {
		return nil, false
	}
	if err = watch.Send(sink, m); err == nil {
		return nil, false
	}
	c.in.putBack(m)
	if ctx.Err() != nil || c.end.closing.Err() == nil || !errors.Is(err, context.Canceled) {
		return err, true
	}
	return c.end.err, false // Close has ended the Send
}

// deliverInBurst hands m to sink as one of a Burst, if it is not alone: another one goes ahead of it, or more says that one
// follows. The Burst ends before the next read (lines.await). false: m is to be sent, which may wait, and the Burst has ended.
func (c *Conn) deliverInBurst(sink bridge.Sink, m jsonrpc.Message, more bool) (taken bool) {
	b := c.in.lines.burst
	if more {
		b.Begin()
	}
	if !b.Going() {
		return false
	}
	if sink.TrySend(m.WithBurst(b)) {
		return true
	}
	b.End()
	return false
}

// takeFirst takes the first message out of pending, or else out of the line that
// awaitLine has found; the zero Message: the line has none, or it has several, which
// are pending now. more says that others follow without a read.
func (c *Conn) takeFirst(ctx context.Context) (m jsonrpc.Message, more bool, err error) {
	c.in.lock()
	defer c.in.mu.Unlock()
	if len(c.in.pending) > 0 {
		m = c.in.pending[0]
		c.in.pending, c.in.firstRefused = c.in.pending[1:], false
		return m, len(c.in.pending) > 0 || c.in.lines.hasLine(), nil
	}
	ln, err := c.in.lines.take()
	if err != nil {
		return m, false, c.receiveError(ctx, err)
	}
	m, err = c.decodeLine(ctx, ln)
	return m, c.in.lines.hasLine(), err
}

// putBack makes m, which a Sink has refused, the message that the next Receive begins with, even if its ctx is done.
func (in *incoming) putBack(m jsonrpc.Message) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pending, in.firstRefused = slices.Insert(in.pending, 0, m), true
}

// Close implements bridge.Conn. It returns what closer returned. The reason is not
// said: there is no place for it in a stream of messages.
func (c *Conn) Close(reason error) error {
	c.closeKept()
	c.abort(io.ErrClosedPipe)
	c.in.src.wait()
	c.refusals.stop()
	return c.closer()
}

// abort ends the conversation for the reason err: it ends all calls, and calls closer.
func (c *Conn) abort(err error) {
	c.fail(err)
	c.end.close()
	c.closer()
}

// fail ends the conversation for the reason err: all calls return it, now and for
// good. The first reason counts. closer is not called.
func (c *Conn) fail(err error) {
	c.end.set(err)
	c.in.src.close()
	c.out.dest.close()
}

// ending says whether a Conn has ended, and why. There are two steps. After set,
// nothing is read or sent any more. After a call of close, Receive does not wait for a
// Sink either.
type ending struct {
	once sync.Once     // makes only the first call of set count
	done chan struct{} // closed by set: the conversation is over
	err  error         // the reason; set before done is closed

	closing context.Context    // a context that is done after close
	close   context.CancelFunc // ends closing: Close or abort calls it
}

// init makes an ending ready: the Conn has not ended.
func (e *ending) init() {
	e.done = make(chan struct{})
	e.closing, e.close = context.WithCancel(context.Background())
}

// set ends the conversation for the reason err; only the first call counts.
func (e *ending) set(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// endError returns why a call with ctx must end: the Conn has ended, or ctx has; nil:
// it need not.
func (e *ending) endError(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	default:
		return ctx.Err()
	}
}
