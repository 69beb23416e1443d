package legacysse

import (
	"context"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// postQueue is where the POSTs of a session meet its Sink. As long as the Sink takes messages
// at once and none waits, a POST calls the Sink, which spares a change of goroutine.
// What the Sink does not take at once is left to the goroutine of Receive, which may
// wait. The POST is then done (SS3: it is answered when its message was accepted), and the
// next one waits until the Sink has taken that message. So at most one message that was
// accepted waits in queue, as its first. It is offered again whatever the ctx says:
// nobody else still has it.
//
// Messages keep the order in which their POSTs got the lock delivering. It is held while a
// POST calls the Sink, which does not wait then, and while the fields are looked at. The
// goroutine of Receive calls the Sink without delivering, and only while sink is nil.
type postQueue struct {
	wakeup chan struct{} // holds one element when something was added to queue

	delivering sync.Mutex       // guards what follows; held while a POST calls sink
	sink       bridge.Sink      // the Sink of a Receive that waits for messages; nil: there is none
	queue      []*queuedMessage // the messages that no Sink has taken, oldest first; only the first one may be accepted
}

// queuedMessage is a message that was POSTed.
type queuedMessage struct {
	m        jsonrpc.Message // the message
	share    *budget.Share   // what m holds of the budget; mostly nil
	accepted chan struct{}   // closed when Receive has taken m out, or m is next for the Sink: the POST is done
}

// offerAndWait hands on a message, and returns when it was accepted. The error says that ctx is done, or
// that the session takes no more (taking is done); then share is still the caller's.
func (p *postQueue) offerAndWait(ctx, taking context.Context, m jsonrpc.Message, share *budget.Share) error {
	queued := p.offer(m, share)
	if queued == nil {
		return nil
	}
	var err error
	select {
	case <-queued.accepted:
		return nil
	case <-taking.Done():
		err = errSessionEnded
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.delivering.Lock()
	defer p.delivering.Unlock()
	if i := slices.Index(p.queue, queued); i >= 0 && !isDone(queued.accepted) {
		p.queue = slices.Delete(p.queue, i, i+1)
		return err
	}
	return nil
}

// offer calls the Sink with a message if it is the first, and queues it if the Sink does not take it
// at once. nil: the message was accepted, so its POST need not wait.
func (p *postQueue) offer(m jsonrpc.Message, share *budget.Share) *queuedMessage {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	first := p.sink != nil && len(p.queue) == 0
	if first && p.sink.TrySend(m) {
		share.ReleaseAll()
		return nil
	}
	it := &queuedMessage{m, share, make(chan struct{})}
	p.queue = append(p.queue, it)
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
	if first { // what a Sink was offered it is offered again
		close(it.accepted)
		return nil
	}
	return it
}

// receive hands messages to sink until ctx is done and no accepted message waits, or
// until sink refuses one. sending is the ctx of sink's Send, which may outlive ctx.
func (p *postQueue) receive(ctx, sending context.Context, sink bridge.Sink) error {
	for {
		p.awaitFirst(ctx, sink)
		if err := p.deliverFirst(ctx, sending, sink); err != nil {
			return err
		}
	}
}

// awaitFirst lets POSTs call sink until there is a message that is left to the caller, or ctx is done.
func (p *postQueue) awaitFirst(ctx context.Context, sink bridge.Sink) {
	for p.isIdle(ctx, sink) {
		select {
		case <-p.wakeup:
		case <-ctx.Done():
		}
	}
}

// isIdle reports whether the receiver has to wait for a message. If so, POSTs call sink from now on.
func (p *postQueue) isIdle(ctx context.Context, sink bridge.Sink) bool {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	p.sink = nil
	if len(p.queue) > 0 || ctx.Err() != nil {
		return false
	}
	p.sink = sink
	return true
}

// deliverFirst takes the first message out of the queue, and calls Send of sink with it, whose ctx is
// sending. It is no part of receive, because a goroutine that waits there should need little stack:
// there are as many as there are sessions.
//
//go:noinline
func (p *postQueue) deliverFirst(ctx, sending context.Context, sink bridge.Sink) error {
	it, err := p.next(ctx)
	if err != nil {
		return err
	}
	if err := sink.Send(sending, it.m); err != nil {
		p.delivering.Lock()
		p.queue = slices.Insert(p.queue, 0, it)
		p.delivering.Unlock()
		return err
	}
	it.share.ReleaseAll()
	return nil
}

// next takes the first message, for which awaitFirst has waited, out of the queue. The error says that
// ctx is done: then only a message that was accepted is taken out.
func (p *postQueue) next(ctx context.Context) (*queuedMessage, error) {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	if err := ctx.Err(); err != nil && !p.isFirstAccepted() {
		return nil, err
	}
	it := p.queue[0]
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	}
	if !isDone(it.accepted) {
		close(it.accepted)
	}
	return it, nil
}

// isFirstAccepted reports whether the first of queue was accepted: its POST is done, so the
// Sink has to get it. The lock is held.
func (p *postQueue) isFirstAccepted() bool { return len(p.queue) > 0 && isDone(p.queue[0].accepted) }

// freeShares removes the messages that were accepted, and gives back what they hold of the budget. It is called when
// there is no receiver any more, so that nobody will take them.
func (p *postQueue) freeShares() {
	p.delivering.Lock()
	defer p.delivering.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(it *queuedMessage) bool {
		if isDone(it.accepted) {
			it.share.ReleaseAll()
			return true
		}
		return false
	})
}

// isDone reports whether a channel is closed.
func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
