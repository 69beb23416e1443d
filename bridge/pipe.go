package bridge

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Pipe returns two Conns in memory: what is sent into one is received from the other.
// Each direction is an Inbox that holds 16 messages; then Send waits.
//
// Close ends both directions: the other side receives what was sent before and
// then io.EOF, and can send no more. Sending into, or receiving from, a side
// that was closed itself gives io.ErrClosedPipe. A Pipe starts no goroutine, so it
// works inside testing/synctest.
func Pipe() (a, b Conn) {
	x, y := new(pipeEnd), new(pipeEnd)
	x.peer, y.peer = y, x
	return x, y
}

// pipeEnd is one side of a Pipe.
type pipeEnd struct {
	peer   *pipeEnd    // the other side of the Pipe
	in     Inbox       // what the other side has sent
	closed atomic.Bool // this side was closed
}

// Send implements Conn: it queues m for the other side, or hands it to that at once, and waits while there is no room.
// Once either side is closed, it returns io.ErrClosedPipe.
func (p *pipeEnd) Send(ctx context.Context, m jsonrpc.Message) error {
	err := ctx.Err()
	if err == nil && p.closed.Load() {
		return io.ErrClosedPipe
	}
	if err == nil {
		err = p.peer.in.Send(ctx, m)
	}
	if err != nil && ctx.Err() == nil { // one side was closed meanwhile
		err = io.ErrClosedPipe
	}
	return err
}

// TrySend implements Conn: it queues m for the other side, or hands it to that at once.
func (p *pipeEnd) TrySend(m jsonrpc.Message) bool {
	return !p.closed.Load() && p.peer.in.TrySend(m)
}

// Receive implements Conn: it hands on what the other side has sent.
func (p *pipeEnd) Receive(ctx context.Context, sink Sink) error { return p.in.Receive(ctx, sink) }

// Close implements Conn: it ends both directions.
func (p *pipeEnd) Close(error) error {
	p.closed.Store(true)
	p.peer.in.End(io.EOF)
	p.in.Abort(io.ErrClosedPipe)
	return nil
}
