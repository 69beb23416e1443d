package stdio

import (
	"context"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// refusals are the error responses to requests of a server that are invalid or too long, while they wait
// for the server to read them. Receive must not wait for that: the server may read
// nothing until what it has sent is received. One goroutine sends them; it starts with
// the first one and ends with the Conn. What the queue has no room for is dropped.
type refusals struct {
	queue     bridge.Inbox   // the responses that wait
	startOnce sync.Once      // starts the goroutine that sends, once
	sender    sync.WaitGroup // waits for the goroutine that sends
}

// add queues reply, or drops it if there is no room. The goroutine, which the first
// call starts, sends it with to.
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

// stop drops the responses that wait, and returns when the goroutine has ended.
func (r *refusals) stop() {
	r.queue.Abort(io.ErrClosedPipe)
	r.startOnce.Do(func() {}) // so that it does not start any more
	r.sender.Wait()
}

// refuse sends the server reply, the error response to one of its requests that is not valid
// or is too long. It does not wait for the server to take it.
func (c *Conn) refuse(reply jsonrpc.Message) {
	if !c.TrySend(reply) {
		c.refusals.add(c, reply)
	}
}
