package observe

import (
	"sync"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Rewriter changes requests that are about to be sent, to the server or to the client. It is
// called in the goroutines that carry the traffic, concurrently, and never waits.
type Rewriter interface {
	// Rewrite returns what is sent in the place of p.Message, with the same id. p has no Seq
	// yet. If the peer has not taken the request at once, Rewrite is called again with the
	// same p.Call, and must return the same bytes.
	Rewrite(p *Passed) jsonrpc.Message
}

// SetRewriter sets the Rewriter, until stop is called. There is one at most, and it is called
// only while there is also a Watcher of messages; the Watchers are told what it returns.
func (o *Observer) SetRewriter(r Rewriter) (stop func()) {
	o.rewriter.Store(&r)
	return func() { o.rewriter.Store(nil) }
}

// maxUnsent is how many requests are kept that a peer has not taken at once. Of more, some
// are rewritten as if they were new.
const maxUnsent = 256

// unsentRequests are the requests that a Conn was offered with TrySend and has not taken: Send
// follows. The zero value works, and any number of goroutines may use it.
type unsentRequests struct {
	n   atomic.Int32 // the length of all
	mu  sync.Mutex
	all map[unsentKey]*Call
}

// unsentKey is a request: the same as often as it is tried.
type unsentKey struct {
	mark *jsonrpc.Mark
	id   jsonrpc.ID
}

// keep keeps a request. It returns those that are not kept any more for it.
func (o *unsentRequests) keep(m *jsonrpc.Message, call *Call) (left map[unsentKey]*Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.all) >= maxUnsent {
		left, o.all = o.all, make(map[unsentKey]*Call)
	}
	o.all[unsentKey{m.Mark(), m.ID()}] = call
	o.n.Store(int32(len(o.all)))
	return left
}

// clear forgets all requests, and returns them.
func (o *unsentRequests) clear() map[unsentKey]*Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.all
	o.all = nil
	o.n.Store(0)
	return left
}

// take returns the Call with which m was tried before; nil: it was not.
func (o *unsentRequests) take(m *jsonrpc.Message) *Call {
	if o.n.Load() == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := unsentKey{m.Mark(), m.ID()}
	call := o.all[key]
	if call != nil && call.Method != m.Method() {
		return nil
	}
	delete(o.all, key)
	o.n.Store(int32(len(o.all)))
	return call
}
