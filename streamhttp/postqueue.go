package streamhttp

import (
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// postQueue is where POSTs meet a session's Recv. It keeps nothing of theirs: a message
// that was taken has reached Recv, and one that was not is still its POST's. What the
// bridge itself has to say to the server is kept: no more than the server has asked.
// What a message holds of the budget is given back when Recv is asked for the next:
// then the server has it.
type postQueue struct {
	waiter *bridge.Waiter

	mu      sync.Mutex
	queue   []*pendingPOST // oldest first
	passing *budget.Share  // of the message that Recv has returned last; mostly nil
	err     error          // why nothing is taken any more
}

// pendingPOST is a message that a POST holds out, or that was put there. The postQueue's lock guards it.
type pendingPOST struct {
	m     jsonrpc.Message
	share *budget.Share // what it holds of the budget; mostly nil
	taken bool
	done  chan struct{} // closed when it is taken; nil: nobody has asked for it
}

func newPostQueue() *postQueue {
	b := new(postQueue)
	b.waiter = bridge.NewWaiter(b.poll)
	return b
}

// hold holds a message out, with what it holds of the budget. The caller may have
// to do the work of the session's receiver, so it must have no locks.
func (b *postQueue) offer(m jsonrpc.Message, share *budget.Share) *pendingPOST {
	h := &pendingPOST{m: m, share: share}
	b.mu.Lock()
	b.queue = append(b.queue, h)
	b.mu.Unlock()
	b.waiter.Arrived()
	return h
}

// put leaves a message there that nobody waits for. The caller may hold locks.
func (b *postQueue) put(m jsonrpc.Message) {
	b.mu.Lock()
	if b.err == nil {
		b.queue = append(b.queue, &pendingPOST{m: m})
	}
	b.mu.Unlock()
	b.waiter.Signal()
}

// taken returns what is closed when h is taken; nil when it is.
func (b *postQueue) taken(h *pendingPOST) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.taken {
		return nil
	}
	if h.done == nil {
		h.done = make(chan struct{})
	}
	return h.done
}

// takeBack holds h out no more, and returns its share. It is false when it was taken.
func (b *postQueue) takeBack(h *pendingPOST) (share *budget.Share, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.taken {
		return nil, false
	}
	b.queue = slices.DeleteFunc(b.queue, func(o *pendingPOST) bool { return o == h })
	share, h.share = h.share, nil
	return share, true
}

// poll takes the oldest message.
func (b *postQueue) poll() (m jsonrpc.Message, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.passing != nil {
		b.passing.Free()
		b.passing = nil
	}
	if b.err != nil || len(b.queue) == 0 {
		return m, b.err, b.err != nil
	}
	h := b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	m, h.m, h.taken = h.m, m, true
	b.passing, h.share = h.share, nil
	if h.done != nil {
		close(h.done)
	}
	return m, nil, true
}

// end makes the postQueue take nothing any more.
func (b *postQueue) end(err error) {
	b.mu.Lock()
	b.err = err
	b.passing.Free()
	b.passing = nil
	b.mu.Unlock()
	b.waiter.Signal()
}
