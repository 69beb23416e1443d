// Package stdio carries JSON-RPC messages as lines: one message, one line
// (docs/rules.md, ST). Command starts a child process and talks to it, Socket
// connects to a server; Std is this process's own client, and SocketServer serves
// those that connect to a socket.
package stdio

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultMaxMessageSize is the largest message in bytes, unless Options say otherwise (J9).
const DefaultMaxMessageSize = 64 << 20

// maxBatch is how many messages a client's batch may have (LI9).
const maxBatch = 50

// Peer says who is at the other end: what is done about invalid input differs.
type Peer uint8

const (
	// Server: many print banners and logs between their messages. Such lines
	// are skipped (ST4).
	Server Peer = iota
	// Client: whatever it writes is meant as a message; it is told what was
	// wrong with it (J4).
	Client
)

// Options tune a Conn. The zero value works.
type Options struct {
	// Peer is what is at the other end.
	Peer Peer

	// MaxMessageSize is the longest line that is kept, in bytes, in the
	// direction of Recv; 0 means DefaultMaxMessageSize. A longer one is thrown
	// away as it arrives, but whoever waits for it gets an error.
	MaxMessageSize int

	// MaxDepth is how many levels of objects and arrays a message may have, in the
	// direction of Recv (J14); 0 means jsonrpc.DefaultMaxDepth, negative any number.
	MaxDepth int

	// AcceptBatch says whether a client may send arrays now (ST5: only when
	// 2025-03-26 was negotiated). nil means that the Conn finds out: the answer
	// to initialize passes through Send. Servers always may. Recv calls it.
	AcceptBatch func() bool

	// OnNoise is told of each line, or element of a batch, that was no valid
	// message: the size of its line in bytes and what was wrong, never its
	// content. Recv calls it, so it must not wait for the Conn; nil is fine.
	OnNoise func(size int, reason string)
}

// Conn is a bridge.PullConn over two byte streams. An array is received as the
// single messages in it; arrays are never sent.
type Conn struct {
	opts    Options
	closer  func() error
	src     source
	out     sink
	try     tryWriter // nil: there is no writing without waiting
	skipped atomic.Int64

	revision  bridge.Revision  // of a client that AcceptBatch says nothing about
	questions bridge.Questions // to a client

	recv  sync.Mutex // held while a message is received
	lines lines
	batch []jsonrpc.Message // what is left of an array
	back  []jsonrpc.Message // was received and given back

	refuseMu   sync.Mutex
	refusals   []jsonrpc.Message // to a server; the first is being sent
	refusing   bool              // sendRefusals runs
	refuseOver bool              // by Close
	refusers   sync.WaitGroup    // sendRefusals

	sending chan struct{} // holds one element during Send; a channel, because waiting must end with ctx
	sendErr error         // why nothing can be sent any more

	done      chan struct{} // closed by fail
	failOnce  sync.Once
	err       error // set before done is closed
	closeOnce sync.Once
	closeErr  error
}

// NewConn returns a Conn that reads lines from r and writes lines to w. Close
// calls closer, once, which must end what r and w lead to; nil does nothing.
//
// If r and w have working deadlines (pipes, sockets and terminals of the os
// and net packages), Recv reads in the caller's goroutine, and a context ends
// a blocked Recv or Send at once. Otherwise a goroutine reads r from the first
// Recv on, Close waits for it, and closer must make a blocked r.Read return.
//
// Send makes one write of each message up to 64 KiB. When its context ends in
// the middle of a message the peer would take the next one for the rest of it:
// the Conn then fails with ErrCutOff, as if it was closed; Close is still needed.
func NewConn(r io.Reader, w io.Writer, closer func() error, opts Options) *Conn {
	return newConn(r, w, closer, opts, false)
}

func newConn(r io.Reader, w io.Writer, closer func() error, opts Options, abandon bool) *Conn {
	if opts.MaxMessageSize <= 0 {
		opts.MaxMessageSize = DefaultMaxMessageSize
	}
	opts.MaxDepth = cmp.Or(opts.MaxDepth, jsonrpc.DefaultMaxDepth)
	if closer == nil {
		closer = func() error { return nil }
	}
	c := &Conn{
		opts:    opts,
		closer:  closer,
		src:     newSource(r, abandon),
		sending: make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	c.out = newSink(w, c.abort)
	c.try = newTryWriter(w)
	c.lines = lines{src: c.src, max: opts.MaxMessageSize}
	return c
}

// Skipped returns how many lines, or elements of batches, were no valid
// message so far. It may be called at any time.
func (c *Conn) Skipped() int64 { return c.skipped.Load() }

// Recv implements bridge.PullConn. The end of the stream is io.EOF.
func (c *Conn) Recv(ctx context.Context) (jsonrpc.Message, error) { return c.Offer(ctx, nil) }

// Offer is what bridge.Offer says. take is called by the caller's goroutine, and may wait.
func (c *Conn) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	for {
		m, err := c.next(ctx)
		if err != nil || take == nil {
			return m, err
		}
		took, more := take(m, true)
		switch {
		case !took:
			return m, nil
		case !more:
			return jsonrpc.Message{}, bridge.ErrEnough
		}
	}
}

// next returns the next message.
func (c *Conn) next(ctx context.Context) (jsonrpc.Message, error) {
	c.recv.Lock()
	defer c.recv.Unlock()
	if len(c.back) > 0 && c.stopped(context.Background()) == nil {
		m := c.back[0]
		c.back = c.back[1:]
		return m, nil
	}
	for {
		if err := c.stopped(ctx); err != nil {
			return jsonrpc.Message{}, err
		}
		if len(c.batch) > 0 {
			m := c.batch[0]
			c.batch = c.batch[1:]
			return m, nil
		}
		ln, err := c.lines.next(ctx)
		if errors.Is(err, errInterrupted) {
			continue
		}
		if err == errTooMuch {
			c.endFor(err)
		}
		if err != nil {
			if stopped := c.stopped(ctx); stopped != nil {
				err = stopped // closing a file makes many errors
			}
			return jsonrpc.Message{}, err
		}
		m, err := c.message(ctx, ln)
		if err != nil || m.Kind() != jsonrpc.Invalid {
			return m, err
		}
	}
}

// Unread is what bridge.Unread says.
func (c *Conn) Unread(early ...jsonrpc.Message) {
	c.recv.Lock()
	defer c.recv.Unlock()
	c.back = slices.Concat(early, c.back)
}

// stopped returns why a call must end, nil if it need not.
func (c *Conn) stopped(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	default:
		return ctx.Err()
	}
}

var byteOrderMark = []byte("\uFEFF")

// message returns the message in a line; the zero Message if there is none,
// or several, which are then in c.batch.
func (c *Conn) message(ctx context.Context, ln line) (jsonrpc.Message, error) {
	if ln.tooLong {
		what := c.tooLong()
		return c.refused(ctx, ln.size, what, &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidRequest, Message: "the message " + what, ID: ln.id, Kind: ln.kind, Marked: true,
		})
	}
	text := trim(ln.text)
	switch {
	case len(text) == 0:
		return jsonrpc.Message{}, nil
	case text[0] == '[':
		return c.array(ctx, ln)
	case text[0] != '{' && c.opts.Peer == Server:
		c.noise(ln.size, "the line is not a JSON object")
		return jsonrpc.Message{}, nil
	}
	if !ln.owned {
		text = bytes.Clone(text)
	}
	m, err := jsonrpc.ParseDepth(text, c.opts.MaxDepth)
	if err != nil {
		return c.invalid(ctx, ln.size, asError(err))
	}
	c.received(m)
	return m, nil
}

// received takes note of a valid message.
func (c *Conn) received(m jsonrpc.Message) {
	c.lines.max = c.opts.MaxMessageSize
	if c.opts.Peer == Client {
		c.questions.Received(m)
	}
}

// trim leaves out a byte order mark in front, and white space around (ST2).
func trim(text []byte) []byte {
	text = bytes.TrimPrefix(text, byteOrderMark)
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// array takes a batch apart (ST5). What is wrong with an element is said before
// the others are received.
func (c *Conn) array(ctx context.Context, ln line) (jsonrpc.Message, error) {
	accept, limit := true, 0
	if c.opts.Peer == Client {
		accept, limit = c.acceptsBatch(), maxBatch
	}
	// The text is not ours, but of an array only copies of the elements are kept.
	batch, faults := jsonrpc.Decode(ln.text, accept, limit, c.opts.MaxDepth)
	for _, m := range batch {
		c.received(m)
	}
	for _, e := range faults {
		m, err := c.invalid(ctx, ln.size, e)
		if err != nil {
			return m, err
		}
		if m.Kind() != jsonrpc.Invalid {
			batch = append(batch, m)
		}
	}
	c.batch = batch
	return jsonrpc.Message{}, nil
}

func (c *Conn) acceptsBatch() bool {
	if c.opts.AcceptBatch != nil {
		return c.opts.AcceptBatch()
	}
	return c.revision.Batches()
}

func asError(err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: err.Error()}
}

// invalid deals with input that is no valid message.
func (c *Conn) invalid(ctx context.Context, size int, e *jsonrpc.Error) (jsonrpc.Message, error) {
	return c.refused(ctx, size, "was not valid: "+e.Message, e)
}

// refused deals with input that is not received; what says, of an answer, why.
// Where it was to be the answer to a request, it returns an error in its place, so
// that the caller does not wait forever; a client is told about anything else it
// may wait for, and a server about its requests.
func (c *Conn) refused(ctx context.Context, size int, what string, e *jsonrpc.Error) (jsonrpc.Message, error) {
	c.noise(size, e.Message)
	switch {
	case e.Kind == jsonrpc.Response && !e.Answers():
		return jsonrpc.Message{}, nil
	case c.opts.Peer == Server && e.Answers(), c.opts.Peer == Client && c.questions.Answered(e):
		from := "server"
		if c.opts.Peer == Client {
			from = "client"
		}
		text := fmt.Sprintf("the %s's answer %s", from, what)
		return jsonrpc.NewError(e.ID, jsonrpc.CodeInternalError, text, nil), nil
	}
	reply, due := e.Reply()
	switch {
	case !due:
	case c.opts.Peer == Client:
		return jsonrpc.Message{}, c.Send(ctx, reply)
	case e.Asks():
		c.refuse(reply)
	}
	return jsonrpc.Message{}, nil
}

// mostRefused is how many of a server's requests may wait for it to read that they were
// refused.
const mostRefused = 16

// refuse tells a server that its request is not received. Recv must not wait for that:
// the server may read nothing until what it has sent is received.
func (c *Conn) refuse(reply jsonrpc.Message) {
	if c.try != nil && c.trySend(reply) {
		return
	}
	c.refuseMu.Lock()
	defer c.refuseMu.Unlock()
	if c.refuseOver || len(c.refusals) == mostRefused {
		return
	}
	c.refusals = append(c.refusals, reply)
	if !c.refusing {
		c.refusing = true
		c.refusers.Go(c.sendRefusals)
	}
}

// sendRefusals sends what waits in refusals until nothing does, or the Conn is closed.
func (c *Conn) sendRefusals() {
	c.refuseMu.Lock()
	defer c.refuseMu.Unlock()
	for len(c.refusals) > 0 {
		reply := c.refusals[0]
		c.refuseMu.Unlock()
		err := c.Send(context.Background(), reply) // which Close ends
		c.refuseMu.Lock()
		if c.refusals = c.refusals[1:]; err != nil {
			break // nothing can be sent any more
		}
	}
	c.refusals, c.refusing = nil, false
}

func (c *Conn) noise(size int, reason string) {
	c.skipped.Add(1)
	if c.opts.OnNoise != nil {
		c.opts.OnNoise(size, reason)
	}
}

// Close implements bridge.PullConn. It returns what closer returned.
func (c *Conn) Close() error {
	c.abort(io.ErrClosedPipe)
	c.src.wait()
	c.refuseMu.Lock()
	c.refuseOver = true
	c.refuseMu.Unlock()
	c.refusers.Wait()
	return c.closeErr
}

// abort ends the conversation for the reason err.
func (c *Conn) abort(err error) {
	c.fail(err)
	c.closeOnce.Do(func() { c.closeErr = c.closer() })
}

// fail makes all calls return err, now and for good. The first one counts.
func (c *Conn) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		close(c.done)
	})
	c.src.close()
	c.out.close()
}
