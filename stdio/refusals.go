package stdio

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// refusals are the answers to requests of a server that were not valid, while they
// wait for the server to read them. Receive must not wait for that: the server may
// read nothing until what it has sent is received. One goroutine sends them; it starts
// with the first answer and ends with the Conn. What the queue has no room for is
// dropped.
type refusals struct {
	queue     bridge.Inbox
	startOnce sync.Once
	sender    sync.WaitGroup
}

// add queues reply, which the goroutine sends to to. The first call starts that goroutine.
func (r *refusals) add(to bridge.Sink, reply jsonrpc.Message) {
	if !r.queue.Put(reply) {
		return
	}
	r.startOnce.Do(func() {
		r.sender.Go(func() {
			// Only the end of the queue, or of to, ends this.
			_ = r.queue.Receive(context.Background(), to)
		})
	})
}

// stop drops what waits, and returns when nothing more is sent.
func (r *refusals) stop() {
	r.queue.Abort(io.ErrClosedPipe)
	r.startOnce.Do(func() {}) // so that it does not start any more
	r.sender.Wait()
}

// refuse tells a server that its request is not received.
func (c *Conn) refuse(reply jsonrpc.Message) {
	if !c.TrySend(reply) {
		c.refusals.add(c, reply)
	}
}
