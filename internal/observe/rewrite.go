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

// Rewrite sets the Rewriter, until stop is called. There is one at most, and it is called
// only while there is also a Watcher of messages; the Watchers are told what it returns.
func (o *Observer) Rewrite(r Rewriter) (stop func()) {
	o.rewriter.Store(&r)
	return func() { o.rewriter.Store(nil) }
}

// maxOffers is how many requests are kept that a peer has not taken at once. Of more, some
// are rewritten as if they were new.
const maxOffers = 256

// offers are the requests that a Conn was offered with TrySend and has not taken: Send
// follows. The zero value works, and any number of goroutines may use it.
type offers struct {
	n   atomic.Int32 // the length of all
	mu  sync.Mutex
	all map[offer]*Call
}

// offer is a request: the same as often as it is offered.
type offer struct {
	mark *jsonrpc.Mark
	id   jsonrpc.ID
}

// keep keeps a request. It returns those that are not kept any more for it.
func (o *offers) keep(m *jsonrpc.Message, call *Call) (left map[offer]*Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.all) >= maxOffers {
		left, o.all = o.all, make(map[offer]*Call)
	}
	o.all[offer{m.Mark(), m.ID()}] = call
	o.n.Store(int32(len(o.all)))
	return left
}

// clear forgets all requests, and returns them.
func (o *offers) clear() map[offer]*Call {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.all
	o.all = nil
	o.n.Store(0)
	return left
}

// take returns the Call with which m was offered before; nil: it was not.
func (o *offers) take(m *jsonrpc.Message) *Call {
	if o.n.Load() == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := offer{m.Mark(), m.ID()}
	call := o.all[key]
	if call != nil && call.Method != m.Method() {
		return nil
	}
	delete(o.all, key)
	o.n.Store(int32(len(o.all)))
	return call
}
