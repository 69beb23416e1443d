package bridge

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// pipeBuffer is how many messages wait in each direction of a Pipe before
// Send waits: about what a pipe of the operating system holds.
const pipeBuffer = 16

// Pipe returns two Conns in memory: what is sent into one is received from
// the other. Each direction holds a few messages; then Send waits.
//
// Close ends both directions: the other side receives what was sent before and
// then io.EOF, and can send no more. Sending into, or receiving from, a side
// that was closed itself gives io.ErrClosedPipe. A Pipe starts no goroutine
// and waits on channels only, so it works inside testing/synctest.
func Pipe() (a, b Conn) {
	ab := make(chan jsonrpc.Message, pipeBuffer)
	ba := make(chan jsonrpc.Message, pipeBuffer)
	x := &pipeEnd{in: ba, out: ab, closed: make(chan struct{})}
	y := &pipeEnd{in: ab, out: ba, closed: make(chan struct{})}
	x.peer, y.peer = y, x
	return Push(x), Push(y)
}

type pipeEnd struct {
	in     <-chan jsonrpc.Message
	out    chan<- jsonrpc.Message
	peer   *pipeEnd
	once   sync.Once
	closed chan struct{}
}

// Recv implements Conn.
func (p *pipeEnd) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := ctx.Err(); err != nil {
		return jsonrpc.Message{}, err
	}
	if isClosed(p.closed) {
		return jsonrpc.Message{}, io.ErrClosedPipe
	}
	select {
	case m := <-p.in:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-p.closed:
		return jsonrpc.Message{}, io.ErrClosedPipe
	case <-p.peer.closed:
	}
	select { // what was sent before the end still counts
	case m := <-p.in:
		return m, nil
	default:
		return jsonrpc.Message{}, io.EOF
	}
}

// Send implements Conn.
func (p *pipeEnd) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if isClosed(p.closed) || isClosed(p.peer.closed) {
		return io.ErrClosedPipe // before select, which would choose at random
	}
	select {
	case p.out <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closed:
	case <-p.peer.closed:
	}
	return io.ErrClosedPipe
}

// TrySender implements what TrySender says.
func (p *pipeEnd) TrySender() func(m jsonrpc.Message) bool { return p.trySend }

func (p *pipeEnd) trySend(m jsonrpc.Message) bool {
	if isClosed(p.closed) || isClosed(p.peer.closed) {
		return false
	}
	select {
	case p.out <- m:
		return true
	default:
		return false
	}
}

// Close implements Conn.
func (p *pipeEnd) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
