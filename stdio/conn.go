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
)

// defaultMaxMessageSize is the largest message in bytes, unless Options say otherwise (J9).
const defaultMaxMessageSize = 64 << 20

// maxBatch is how many messages a client's batch may have (LI9).
const maxBatch = 50

// PeerRole says who is at the other end: what is done about invalid input differs.
type PeerRole uint8

const (
	// Server: many print banners and logs between their messages. Such lines
	// are skipped (ST4).
	Server PeerRole = iota
	// Client: whatever it writes is meant as a message; it is told what was
	// wrong with it (J4).
	Client
)

// Options tune a Conn. The zero value works.
type Options struct {
	// Peer is what is at the other end.
	Peer PeerRole

	// MaxMessageSize is the longest line that is received, in bytes; 0 means
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

	// OnNoise is told of each line, or element of a batch, that was no valid
	// message: the size of its line in bytes and what was wrong, never its
	// content. Receive calls it, so it must not wait for the Conn; nil is fine.
	OnNoise func(size int, reason string)
}

// Conn is a bridge.Conn over two byte streams. An array is received as the
// single messages in it; arrays are never sent.
type Conn struct {
	opts         Options
	in           incoming
	out          outgoing
	client       clientState
	skippedCount atomic.Int64 // how often input was no valid message

	refusals refusals
	end      ending
	closer   func() error // runs once, however often it is called
}

// incoming is what the peer sends.
type incoming struct {
	src source

	// mu is held while a line is read and taken apart, never while a message is
	// handed on. The closer holds mu while it reads the rest of the stream.
	mu           sync.Mutex
	lines        lines
	pending      []jsonrpc.Message // were read, and no Sink has taken them yet
	firstRefused bool              // a Sink has refused pending[0]: the next Receive offers it again, even if its ctx is done
}

// clientState is what a Conn has to know of the messages that it has carried to and
// from a client.
type clientState struct {
	revision       clientstate.NegotiatedVersion
	serverRequests clientstate.ServerRequests
}

// NewConn returns a Conn that reads lines from r and writes lines to w. Close
// calls closer, once, which must end what r and w lead to; nil does nothing.
//
// If r and w have working deadlines (pipes, sockets and terminals of the os
// and net packages), Receive reads in the caller's goroutine, and a context ends
// a blocked Receive or Send at once. Otherwise a goroutine reads r from the first
// Receive on, Close waits for it, and closer must make a blocked r.Read return.
//
// Send makes one write of each message up to 64 KiB. When its context ends in
// the middle of a message the peer would take the next one for the rest of it:
// the Conn then fails with ErrCutOff, as if it was closed; Close is still needed.
func NewConn(r io.Reader, w io.Writer, closer func() error, opts Options) *Conn {
	return newConn(r, w, closer, opts, false)
}

// newConn is NewConn. mayAbandon is that of newSource.
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
	c.in.lines = lines{src: c.in.src, max: opts.MaxMessageSize}
	c.out = outgoing{dest: newDestination(w, c.abort), tryWrite: newTryWriter(w), writeTurn: make(chan struct{}, 1)}
	return c
}

// Receive implements bridge.Conn. It calls the Send of sink, which may wait, and
// reads nothing meanwhile. The end of the stream is io.EOF.
func (c *Conn) Receive(ctx context.Context, sink bridge.Sink) error {
	return c.receive(ctx, sink, nil, nil)
}

// receive is Receive. hungUp is the peerEndErr of bridge.NewStallWatch. explain returns the
// error of Receive for the one with which the stream has ended. Both may be nil.
func (c *Conn) receive(ctx context.Context, sink bridge.Sink, hungUp func() error, explain func(context.Context, error) error) error {
	sendCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.end.closing, cancel)()
	watch := bridge.NewStallWatch(sendCtx, hungUp)
	defer watch.Stop()
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

// awaitLine waits until there is something to hand on. What is done between two waits is in
// functions of its own: a goroutine that waits here should need little stack, as there are
// as many as there are sessions.
func (c *Conn) awaitLine(ctx context.Context) error {
	c.in.mu.Lock()
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

// receiveError returns the error of Receive for an error of lines; nil: there is a line.
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

// deliverFirst hands on the message that awaitLine has found, if the line has one. bySink says that err is
// sink's.
//
//go:noinline
func (c *Conn) deliverFirst(ctx context.Context, sink bridge.Sink, watch *bridge.StallWatch) (err error, bySink bool) {
	m, err := c.takeFirst(ctx)
	if err != nil || m.Kind() == jsonrpc.Invalid {
		return err, false
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

// takeFirst takes the first message out; the zero Message: there is none in the line.
func (c *Conn) takeFirst(ctx context.Context) (jsonrpc.Message, error) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if len(c.in.pending) > 0 {
		m := c.in.pending[0]
		c.in.pending, c.in.firstRefused = c.in.pending[1:], false
		return m, nil
	}
	ln, err := c.in.lines.take()
	if err != nil {
		return jsonrpc.Message{}, c.receiveError(ctx, err)
	}
	return c.decodeLine(ctx, ln)
}

// putBack makes m, which a Sink has refused, the next message.
func (in *incoming) putBack(m jsonrpc.Message) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pending, in.firstRefused = slices.Insert(in.pending, 0, m), true
}

// Close implements bridge.Conn. It returns what closer returned. The reason is not
// said: there is no place for it in a stream of messages.
func (c *Conn) Close(reason error) error {
	c.abort(io.ErrClosedPipe)
	c.in.src.wait()
	c.refusals.stop()
	return c.closer()
}

// abort ends the conversation for the reason err, and what the streams lead to.
func (c *Conn) abort(err error) {
	c.fail(err)
	c.end.close()
	c.closer()
}

// fail makes all calls return err, now and for good. The first one counts.
func (c *Conn) fail(err error) {
	c.end.set(err)
	c.in.src.close()
	c.out.dest.close()
}

// ending is the end of a Conn. There are two steps. After set, nothing is read or sent any
// more. After close, Receive does not wait for a Sink either.
type ending struct {
	once sync.Once
	done chan struct{} // closed by set
	err  error         // set before done is closed

	closing context.Context // done after close
	close   context.CancelFunc
}

func (e *ending) init() {
	e.done = make(chan struct{})
	e.closing, e.close = context.WithCancel(context.Background())
}

// set says why the conversation is over; the first one counts.
func (e *ending) set(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// endError returns why a call must end, nil if it need not.
func (e *ending) endError(ctx context.Context) error {
	select {
	case <-e.done:
		return e.err
	default:
		return ctx.Err()
	}
}
