package streamhttp

import (
	"context"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// postQueue is where the POSTs of a session meet its receiver. A message waits in it until
// the receiver's Sink has taken it; as long as it was not offered to the Sink, its POST can
// take it back. What the bridge itself has to say to the server waits in it as well: that
// is no more than the server has asked.
//
// It is no bridge.Inbox because a POST has to know when its message was taken, and what
// it holds of the budget until then.
//
// As long as the receiver is idle, the goroutine of a POST calls TrySend of the receiver's
// Sink. If the Sink does not take the message, the receiver's own goroutine calls Send,
// which may wait.
//
// Two locks: delivering is held while the Sink is called, mu while the fields are looked at.
// delivering comes first; mu is never held across a call of anything.
type postQueue struct {
	delivering sync.Mutex // held while the Sink is called

	mu      sync.Mutex         // guards what follows
	waiting []*pendingMessage  // the messages that the Sink has not taken, oldest first
	sink    bridge.Sink        // the Sink of the receive that waits; nil: none does
	idle    bool               // receive waits, so that others may call sink
	cancel  context.CancelFunc // ends the ctx of the Sink's Send that goes on; nil: none does
	err     error              // why nothing is taken any more; nil: messages are taken
	wakeup  chan struct{}      // holds one element when receive has to look at waiting or err
}

// pendingMessage is a message in a postQueue, whose lock guards it.
type pendingMessage struct {
	m          jsonrpc.Message // the message; zero once it is taken
	share      *budget.Share   // what it holds of the budget; mostly nil
	offered    bool            // a Sink is or was called with it, and may take it: its POST cannot take it back
	comesFirst bool            // the Sink of an earlier receive has refused it: the next receive offers it, even if its ctx is done
	abandoned  bool            // no POST waits for it, so that end gives back its share: its POST could not take it back (takeBack), or it is the bridge's own
	taken      bool            // the Sink has taken it
	done       chan struct{}   // closed when it is taken; nil: nobody has asked for it
}

// newPostQueue returns an empty postQueue.
func newPostQueue() *postQueue { return &postQueue{wakeup: make(chan struct{}, 1)} }

// offer puts a message into the queue, with what it holds of the budget. The caller may have
// to do the work of the session's receiver, so it must have no locks.
func (q *postQueue) offer(m jsonrpc.Message, share *budget.Share) *pendingMessage {
	p := &pendingMessage{m: m, share: share}
	q.mu.Lock()
	q.waiting = append(q.waiting, p)
	q.mu.Unlock()
	if !q.delivering.TryLock() || !q.deliverInline() {
		q.wakeReceiver()
	}
	return p
}

// add puts a message of the bridge's own into the queue, unless end was called. No POST waits for it. The
// caller may hold locks.
func (q *postQueue) add(m jsonrpc.Message) {
	q.mu.Lock()
	if q.err == nil {
		q.waiting = append(q.waiting, &pendingMessage{m: m, abandoned: true})
	}
	q.mu.Unlock()
	q.wakeReceiver()
}

// wakeReceiver has receive look again at what it waits for. It does not wait.
func (q *postQueue) wakeReceiver() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// maxInlineMessages is how many messages one deliverInline hands on. Then the receiver's own
// goroutine goes on: the POST has a reply of its own to see to, and other POSTs may add messages
// without end.
const maxInlineMessages = 32

// deliverInline gives the waiting messages to sink, in the receiver's place. false: a message is left
// for the receiver, which must be woken. true: none is left, or no receiver waits (the next one
// takes what is left), or end was called. The caller has locked delivering, and deliverInline unlocks it.
func (q *postQueue) deliverInline() (done bool) {
	defer q.delivering.Unlock()
	for range maxInlineMessages {
		p, sink := q.offerFirst()
		if p == nil {
			return true
		}
		if !sink.TrySend(p.m) {
			return false // the receiver offers it again
		}
		if more := q.noteTaken(p); !more {
			return true
		}
	}
	return false
}

// offerFirst returns the first message, marked as offered, and the sink of the receiver that waits for it. nil: there
// is no message, no receiver waits, or end was called.
func (q *postQueue) offerFirst() (*pendingMessage, bridge.Sink) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.idle || q.err != nil || len(q.waiting) == 0 {
		return nil, nil
	}
	q.waiting[0].offered = true
	return q.waiting[0], q.sink
}

// whenTaken returns a channel that is closed when the Sink has taken p; nil: it has taken p.
func (q *postQueue) whenTaken(p *pendingMessage) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.taken {
		return nil
	}
	if p.done == nil {
		p.done = make(chan struct{})
	}
	return p.done
}

// takeBack takes p out of the queue, and returns its share. ok is false when p was taken, or
// was offered to the sink: such a message is not withdrawn, because half of it may have been
// written. It stays in the queue without its POST.
func (q *postQueue) takeBack(p *pendingMessage) (share *budget.Share, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case p.taken:
		return nil, false
	case p.offered:
		p.abandoned = true
		if q.err != nil {
			p.freeShare()
		}
		return nil, false
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(o *pendingMessage) bool { return o == p })
	share, p.share = p.share, nil
	return share, true
}

// freeShare gives back what the message holds of the budget. It may be called more than once.
func (p *pendingMessage) freeShare() {
	p.share.ReleaseAll()
	p.share = nil
}

// receive hands messages to sink, as Receive of a bridge.Conn does, until ctx is done, sink refuses
// one, or end was called.
func (q *postQueue) receive(ctx context.Context, sink bridge.Sink) error {
	q.delivering.Lock()
	defer q.delivering.Unlock()
	for {
		idle, err := q.sendFirst(ctx, sink)
		if err != nil {
			return err
		}
		if idle {
			q.delivering.Unlock()
			select {
			case <-q.wakeup:
			case <-ctx.Done():
			}
			q.delivering.Lock()
		}
	}
}

// sendFirst hands the first message to sink, and waits until it is taken; idle: there is none yet. It
// is no part of receive, because a goroutine that waits there should need little stack: there are as
// many as there are sessions.
//
//go:noinline
func (q *postQueue) sendFirst(ctx context.Context, sink bridge.Sink) (idle bool, err error) {
	p, err := q.next(ctx, sink)
	switch {
	case err != nil:
		return false, err
	case p == nil:
		return true, nil
	case sink.TrySend(p.m):
		q.noteTaken(p)
		return false, nil
	}
	return false, q.sendWaiting(ctx, sink, p)
}

// next returns the first message, marked as offered; nil and no error: there is none, and the
// receiver is idle from now on, so that others may call sink.
func (q *postQueue) next(ctx context.Context, sink bridge.Sink) (*pendingMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.idle, q.sink = false, nil
	switch {
	case q.err != nil: // it says more than ctx, which the end of a session ends too
		return nil, q.err
	case len(q.waiting) > 0 && q.waiting[0].comesFirst:
		q.waiting[0].offered = true
		return q.waiting[0], nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(q.waiting) > 0:
		q.waiting[0].offered = true
		return q.waiting[0], nil
	}
	q.idle, q.sink = true, sink
	return nil, nil
}

// sendWaiting calls Send of sink with p, which may wait until it can take p, ctx is done, or end is called. The error is
// that of end, or else that of Send: then the next receive offers p first (comesFirst).
func (q *postQueue) sendWaiting(ctx context.Context, sink bridge.Sink, p *pendingMessage) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q.mu.Lock()
	q.cancel = cancel
	if q.err != nil {
		cancel()
	}
	q.mu.Unlock()
	err := sink.Send(ctx, p.m)
	if err == nil {
		q.noteTaken(p)
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel = nil
	if q.err != nil {
		return q.err
	}
	p.offered, p.comesFirst = false, true
	return err
}

// noteTaken notes that the sink has taken p, the first message. It reports whether there is another.
func (q *postQueue) noteTaken(p *pendingMessage) (more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cancel = nil
	q.waiting = slices.Delete(q.waiting, 0, 1)
	p.m, p.taken = jsonrpc.Message{}, true
	p.freeShare()
	if p.done != nil {
		close(p.done)
	}
	return len(q.waiting) > 0
}

// end makes receive return err, now and for good. A POST takes its message back itself.
func (q *postQueue) end(err error) {
	q.mu.Lock()
	q.err = err
	for _, p := range q.waiting {
		if p.abandoned {
			p.freeShare()
		}
	}
	if q.cancel != nil {
		q.cancel()
	}
	q.mu.Unlock()
	q.wakeReceiver()
}
