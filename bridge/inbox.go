package bridge

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// defaultMaxMessages is how many messages wait in an Inbox whose MaxMessages is 0.
const defaultMaxMessages = 16

// An Inbox is the bounded queue between those that bring messages and one receiver. As
// long as nothing waits in it and the receiver is idle, whoever brings a message does
// the receiver's work (TrySend of its Sink), which spares a change of goroutine. The
// zero Inbox is ready for use; it must not be copied.
//
// Two locks: sendTurn is held while the receiver's Sink is called, mu while the fields are
// looked at. sendTurn comes first; mu is never held across a call of anything.
type Inbox struct {
	// MaxMessages and MaxBytes bound what waits. 0 means 16 messages, and no bound of
	// bytes. An Inbox in which nothing waits takes one message of any size.
	MaxMessages int
	MaxBytes    int

	sendTurn sync.Mutex

	mu            sync.Mutex
	queue         fifo.Queue[jsonrpc.Message]
	queueMemory   [1]jsonrpc.Message // of queue, which mostly is enough
	queuedBytes   int
	taken         Load               // what the receiver has taken so far
	offeringFirst bool               // the first of queue is being offered to sink
	dropOffered   bool               // that one is to be dropped if sink does not take it
	receiverIdle  bool               // Receive waits, so that others may call sink
	sink          Sink               // of the Receive that goes on
	cancelSend    context.CancelFunc // ends the ctx of sink.Send; nil: this Receive has not needed one yet
	endErr        error              // how Receive ends once queue is empty; nil: it does not
	abortErr      error              // how everything ends at once; nil: it does not
	firstRefused  bool               // a Sink has refused the first message in Send
	wakeup        chan struct{}      // holds one element when Receive has to look; nil: nobody has waited yet
	room          chan struct{}      // is closed when there may be room, or no more ever; nil: nobody waits for it
	low           lowMark            // see NotifyBelow
}

// Send implements Sink: it waits while there is no room. After End and Abort it
// returns their error.
func (b *Inbox) Send(ctx context.Context, m jsonrpc.Message) error { return b.wait(ctx, m, b.TrySend) }

// Queue is Send that leaves the work to the receiver, as Put does.
func (b *Inbox) Queue(ctx context.Context, m jsonrpc.Message) error { return b.wait(ctx, m, b.Put) }

// wait calls try until that has taken m.
func (b *Inbox) wait(ctx context.Context, m jsonrpc.Message, try func(jsonrpc.Message) bool) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if try(m) {
			return nil
		}
		b.mu.Lock()
		if err := b.endErrLocked(); err != nil {
			b.mu.Unlock()
			return err
		}
		if b.hasRoom(m) {
			b.mu.Unlock()
			continue
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
	}
}

// TrySend implements Sink. The receiver's Sink may be called in it, so the caller holds
// no lock that this may need.
func (b *Inbox) TrySend(m jsonrpc.Message) bool {
	if !b.sendTurn.TryLock() { // whoever has it looks into the queue, or wakes who does
		return b.Put(m)
	}
	b.mu.Lock()
	inline := b.receiverIdle && b.queue.Len() == 0 && b.endErrLocked() == nil
	sink := b.sink
	b.mu.Unlock()
	if inline && sink.TrySend(m) {
		b.sendTurn.Unlock()
		return true
	}
	defer b.sendTurn.Unlock()
	if inline {
		return b.putBack(m)
	}
	return b.Put(m)
}

// putBack puts what the receiver was offered, and has not taken, before all else: it is offered next.
func (b *Inbox) putBack(m jsonrpc.Message) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abortErr != nil {
		return false
	}
	b.queue.PushFront(m)
	b.queuedBytes += m.Size()
	b.wakeReceiver()
	return true
}

// Put is TrySend that leaves the work to the receiver, for callers that hold locks or
// have other things to do.
func (b *Inbox) Put(m jsonrpc.Message) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.add(m) {
		return false
	}
	b.wakeReceiver()
	return true
}

// Add is Put that leaves it to the caller to call Wake, or Deliver, soon: when it has put
// in all that there is, or has given back its locks.
func (b *Inbox) Add(m jsonrpc.Message) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(m)
}

// add is Add with mu held.
func (b *Inbox) add(m jsonrpc.Message) (taken bool) {
	if b.endErrLocked() != nil || !b.hasRoom(m) {
		return false
	}
	if b.queue.Cap() == 0 {
		b.queue = fifo.New(b.queueMemory[:])
	}
	b.queue.Push(m)
	b.queuedBytes += m.Size()
	return true
}

// Wake has the receiver look at what was added.
func (b *Inbox) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeReceiver()
}

// maxInlineMessages is how many messages one Deliver hands on. Then the receiver's own goroutine
// goes on: the caller's goroutine has work of its own, and others may add messages without end.
const maxInlineMessages = 32

// Deliver is Wake by a goroutine that is ready to do the receiver's work, and holds no
// lock that the receiver's Sink may need.
func (b *Inbox) Deliver() {
	if !b.sendTurn.TryLock() {
		b.Wake()
		return
	}
	defer b.sendTurn.Unlock()
	for range maxInlineMessages {
		m, sink := b.nextInline()
		if sink == nil {
			return
		}
		if !sink.TrySend(m) {
			break
		}
		b.removeOffered()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endOffer()
	if b.queue.Len() > 0 || b.endErrLocked() != nil {
		b.wakeReceiver()
	}
}

// nextInline returns the first message and who is to take it; none: there is none, or
// the receiver is busy and will look itself.
func (b *Inbox) nextInline() (m jsonrpc.Message, sink Sink) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.queue.Len() == 0: // nothing to wake the receiver for: how it ends, End and Abort tell it
		return m, nil
	case !b.receiverIdle || b.abortErr != nil:
		b.wakeReceiver()
		return m, nil
	}
	b.offeringFirst = true
	return b.queue.Rest()[0], b.sink
}

// End says that nothing more comes. Receive returns err once it has handed on what waits; nil
// stands for io.ErrClosedPipe.
func (b *Inbox) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endErr == nil {
		b.endErr = errOrClosed(err)
	}
	b.wakeReceiver()
	b.wakeSenders()
}

// Abort drops what waits, and makes Receive and Send return err; nil stands for
// io.ErrClosedPipe. Its caller may be the Sink.
func (b *Inbox) Abort(err error) { b.abort(err) }

// abort is Abort. It returns what was dropped, but for the message that the Sink is being
// offered.
func (b *Inbox) abort(err error) (dropped []jsonrpc.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.abortErr != nil {
		return nil
	}
	dropped = slices.Clone(b.queue.Rest())
	if b.offeringFirst {
		dropped = dropped[1:]
	}
	if b.cancelSend != nil {
		b.cancelSend()
	}
	b.abortErr, b.queue, b.queuedBytes = errOrClosed(err), fifo.Queue[jsonrpc.Message]{}, 0
	b.offeringFirst, b.queueMemory = false, [1]jsonrpc.Message{}
	b.wakeReceiver()
	b.wakeSenders()
	return dropped
}

func errOrClosed(err error) error {
	if err == nil {
		return io.ErrClosedPipe
	}
	return err
}

// Receive does what Conn.Receive promises.
func (b *Inbox) Receive(ctx context.Context, sink Sink) error {
	b.beginReceive(sink)
	h := delivery{inbox: b, sink: sink}
	defer h.end()
	for {
		idle, err := h.deliverFirst(ctx)
		if err != nil {
			return err
		}
		if idle {
			b.sendTurn.Unlock()
			select {
			case <-b.wakeup:
			case <-ctx.Done():
			}
			b.sendTurn.Lock()
		}
	}
}

// beginReceive begins a Receive. It has the lock sendTurn until the delivery's end, but not
// while it is idle.
func (b *Inbox) beginReceive(sink Sink) {
	b.sendTurn.Lock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sink = sink
	if b.wakeup == nil {
		b.wakeup = make(chan struct{}, 1)
	}
}

// delivery hands on the messages of one Receive.
type delivery struct {
	inbox *Inbox
	sink  Sink

	ctx  context.Context // of the sink's Send, which Abort ends; nil: none was needed yet
	stop func()          // ends ctx
}

// deliverFirst hands on the first message; idle: there is none yet. It is no part of Receive, because a
// goroutine that waits there should need little stack: there are as many as there are sessions.
//
//go:noinline
func (h *delivery) deliverFirst(ctx context.Context) (idle bool, err error) {
	m, err := h.inbox.next(ctx)
	switch {
	case err != nil:
		return false, err
	case m.Kind() == jsonrpc.Invalid:
		return true, nil
	case h.sink.TrySend(m):
		h.inbox.removeOffered()
		return false, nil
	case h.inbox.isOfferedRemoved():
		return false, nil
	}
	if h.ctx == nil {
		var cancel context.CancelFunc
		h.ctx, cancel = context.WithCancel(ctx)
		h.stop = h.inbox.cancelOnAbort(cancel)
	}
	return false, h.inbox.sendFirst(h.ctx, h.sink, m)
}

// end ends the Receive that beginReceive has begun.
func (h *delivery) end() {
	if h.stop != nil {
		h.stop()
	}
	h.inbox.sendTurn.Unlock()
}

// next returns the first message, which stays in the queue; none and no error: there is
// nothing to do yet, and receiverIdle is set.
func (b *Inbox) next(ctx context.Context) (m jsonrpc.Message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiverIdle = false
	switch {
	case b.abortErr != nil:
		err = b.abortErr
	case b.firstRefused:
		b.offeringFirst = true
		return b.queue.Rest()[0], nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case b.queue.Len() > 0:
		b.offeringFirst = true
		return b.queue.Rest()[0], nil
	case b.endErr != nil:
		err = b.endErr
	default:
		b.receiverIdle = true
		return m, nil
	}
	b.sink = nil
	return m, err
}

// cancelOnAbort makes Abort call cancel, until stop is called. stop calls cancel, too.
func (b *Inbox) cancelOnAbort(cancel context.CancelFunc) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelSend = cancel
	if b.abortErr != nil {
		cancel()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cancelSend = nil
		cancel()
	}
}

// sendFirst has sink take m, the first message, and waits for that.
func (b *Inbox) sendFirst(ctx context.Context, sink Sink, m jsonrpc.Message) error {
	err := sink.Send(ctx, m)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.removeOfferedLocked()
		return nil
	}
	b.sink = nil
	removed := b.endOffer()
	if b.abortErr != nil {
		return b.abortErr
	}
	b.firstRefused = !removed
	return err
}

// removeOffered is removeOfferedLocked for who does not hold mu.
func (b *Inbox) removeOffered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeOfferedLocked()
}

// removeOfferedLocked takes the first message, which the receiver has taken, out of the queue,
// unless Abort has done so.
func (b *Inbox) removeOfferedLocked() {
	if b.abortErr != nil {
		return
	}
	b.firstRefused = false
	m := b.pop()
	b.taken.Messages++
	b.taken.Bytes += m.Size()
}

// pop takes the first message out, and tells those that wait for room.
func (b *Inbox) pop() jsonrpc.Message {
	m := b.queue.Pop()
	b.queuedBytes -= m.Size()
	b.offeringFirst, b.dropOffered = false, false
	b.noteRemoval()
	return m
}

// endOffer ends the offer of the first message, if there is one: that stays the
// first, unless it was removed meanwhile. It reports whether it was.
func (b *Inbox) endOffer() (removed bool) {
	removed = b.dropOffered
	if removed && b.abortErr == nil {
		b.pop()
	}
	b.offeringFirst, b.dropOffered = false, false
	return removed
}

// isOfferedRemoved reports whether the message that sink has not taken at once was removed
// meanwhile. If not it is still offered.
func (b *Inbox) isOfferedRemoved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropOffered && b.endOffer()
}

// endErrLocked returns why nothing more is put in; nil: more may be. It is called with mu held.
func (b *Inbox) endErrLocked() error {
	if b.abortErr != nil {
		return b.abortErr
	}
	return b.endErr
}

// hasRoom reports whether MaxMessages and MaxBytes allow m, too. It is called with mu held.
func (b *Inbox) hasRoom(m jsonrpc.Message) bool {
	most := b.MaxMessages
	if most == 0 {
		most = defaultMaxMessages
	}
	n := b.queue.Len()
	return n < most && (n == 0 || b.MaxBytes == 0 || b.queuedBytes+m.Size() <= b.MaxBytes)
}

// noteRemoval tells those that wait for room that less is in the queue.
func (b *Inbox) noteRemoval() {
	b.wakeSenders()
	if b.low.notify != nil && b.low.isReached(b.waiting()) {
		b.notifyLow()
	}
}

// wakeSenders wakes those that wait for room.
func (b *Inbox) wakeSenders() {
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// wakeReceiver makes Receive look.
func (b *Inbox) wakeReceiver() {
	if b.wakeup != nil {
		signal(b.wakeup)
	}
}

// signal puts an element into c, unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
