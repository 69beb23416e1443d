package bridge

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// defaultMaxMessages is how many messages may wait in an Inbox by default (Inbox.MaxMessages).
const defaultMaxMessages = 16

// An Inbox is the bounded queue between those that bring messages and one receiver. As
// long as nothing waits in it and the receiver is idle, whoever brings a message does
// the receiver's work (TrySend of its Sink), which spares a change of goroutine. The
// zero Inbox is ready for use; it must not be copied.
//
// Two locks: sendTurn is held while the receiver's Sink is called, mu while the fields are
// looked at. sendTurn comes first; mu is never held across a call of anything.
type Inbox struct {
	// MaxMessages is how many messages may wait; 0: 16.
	MaxMessages int
	// MaxBytes is how many bytes the messages that wait may have together; 0: any number. An Inbox in which nothing
	// waits takes one message of any size.
	MaxBytes int

	sendTurn sync.Mutex // held while the receiver's Sink is called

	mu            sync.Mutex                  // guards all of the Inbox but the limits; never held across a call of anything
	queue         fifo.Queue[jsonrpc.Message] // what waits; the first is also what is being offered
	queueMemory   [1]jsonrpc.Message          // the first memory of queue, which mostly is enough
	queuedBytes   int                         // how many bytes the messages in queue have
	taken         Load                        // all that the receiver has taken from queue so far
	offeringFirst bool                        // the first of queue is being offered to sink: it must stay there meanwhile
	dropOffered   bool                        // Remove has removed the message that is being offered to sink: it is dropped if sink does not take it
	receiverIdle  bool                        // Receive waits for a message, so others may call sink
	sink          Sink                        // the Sink of the Receive that goes on; nil: none does
	cancelSend    context.CancelFunc          // ends the ctx of a Send of sink, for Abort; nil: no Receive goes on, or it has needed no Send yet
	endErr        error                       // how Receive ends once queue is empty (End); nil: End was not called
	abortErr      error                       // how Receive and Send end at once (Abort); nil: Abort was not called
	firstRefused  bool                        // Send of a Sink has refused the first message: the next Receive begins with it, even if its ctx is done
	wakeup        chan struct{}               // holds one element when Receive has to look at the fields again; nil: there was no Receive yet
	room          chan struct{}               // closed when there may be room, or will never be any more; nil: nobody waits for it
	low           lowMark                     // what NotifyBelow was asked for
}

// Send implements Sink: it queues m, or hands it to an idle receiver, and waits while there is no room. After End and
// Abort it returns their error.
func (b *Inbox) Send(ctx context.Context, m jsonrpc.Message) error { return b.wait(ctx, m, b.TrySend) }

// Queue queues m, for the receiver's own goroutine, and waits while there is no room. It never calls the receiver's
// Sink. After End and Abort it returns their error.
func (b *Inbox) Queue(ctx context.Context, m jsonrpc.Message) error { return b.wait(ctx, m, b.Put) }

// wait calls try again and again, as room comes, until that has taken m, and returns nil. It gives up when ctx is
// done, and after End and Abort.
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

// TrySend implements Sink: it queues m, or hands it to an idle receiver; false if there is no room, and after End and
// Abort. It may call the receiver's Sink, so the caller holds no lock that this may need.
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

// putBack puts a message that the receiver was offered by TrySend, and has not taken, at the head of the queue,
// whatever its room: it is offered next. false after Abort.
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

// Put queues m, for the receiver's own goroutine; false: there is no room, or End or Abort was called. It never calls
// the receiver's Sink: it is for callers that hold locks or have other things to do.
func (b *Inbox) Put(m jsonrpc.Message) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.add(m) {
		return false
	}
	b.wakeReceiver()
	return true
}

// Add queues m and wakes nobody: the caller calls Wake, or Deliver, when it has put in all that there is, or has given
// back its locks. false: there is no room, or End or Abort was called.
func (b *Inbox) Add(m jsonrpc.Message) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(m)
}

// add queues m and wakes nobody; false: there is no room, or End or Abort was called. It is called with mu held.
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

// Wake has the receiver's goroutine look at what Add has put in.
func (b *Inbox) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeReceiver()
}

// maxInlineMessages is how many messages one Deliver hands on in its caller's goroutine. The receiver's own goroutine
// goes on with the rest: the caller has work of its own, and others may add messages without end.
const maxInlineMessages = 32

// Deliver hands the receiver what waits, in the caller's goroutine, if the receiver is idle: as much as its Sink takes at
// once, and no more than maxInlineMessages. Otherwise, and for the rest, it wakes the receiver. The caller holds no lock
// that the receiver's Sink may need.
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

// nextInline begins to offer the first message, and returns it with the Sink that is to take it. sink is nil if there
// is no message, or if the receiver is busy and will look itself.
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

// End says that nothing more comes. Receive returns err once it has handed on what waits, and Send returns it at once;
// nil stands for io.ErrClosedPipe. Only the first End counts.
func (b *Inbox) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.endErr == nil {
		b.endErr = errOrClosed(err)
	}
	b.wakeReceiver()
	b.wakeSenders()
}

// Abort drops what waits, and makes Receive and Send return err, a Send of the receiver's Sink that goes on included;
// nil stands for io.ErrClosedPipe. It may be called by the Sink. Only the first Abort counts.
func (b *Inbox) Abort(err error) { b.abort(err) }

// abort drops what waits, makes Receive and Send return err, as Abort says, and returns the messages that were dropped,
// without one that the Sink was just being offered. It returns nil if Abort was called before.
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

// errOrClosed returns err, or io.ErrClosedPipe in the place of nil.
func errOrClosed(err error) error {
	if err == nil {
		return io.ErrClosedPipe
	}
	return err
}

// Receive hands the messages to sink, as Conn.Receive does: it ends with the error of End, Abort, ctx or sink.
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

// beginReceive notes the Sink of a Receive, and takes sendTurn for it. The delivery's end gives sendTurn back, and so
// does Receive while it is idle.
func (b *Inbox) beginReceive(sink Sink) {
	b.sendTurn.Lock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sink = sink
	if b.wakeup == nil {
		b.wakeup = make(chan struct{}, 1)
	}
}

// delivery is the part of one Receive of an Inbox that calls the Sink.
type delivery struct {
	inbox *Inbox // the Inbox whose Receive this is: the messages come from it
	sink  Sink   // the Sink that Receive was given: the messages go to it

	ctx  context.Context // the ctx of the sink's Sends, which Abort ends too; nil: there was no Send yet
	stop func()          // ends ctx; nil: there is no ctx yet
}

// deliverFirst has the sink take the first message, and waits for that; idle: there is none yet. It is no part of
// Receive, because a goroutine that waits there should need little stack: there are as many as there are sessions.
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

// end ends the Receive: it gives sendTurn back.
func (h *delivery) end() {
	if h.stop != nil {
		h.stop()
	}
	h.inbox.sendTurn.Unlock()
}

// next begins to offer the first message, which stays in the queue, and returns it. The zero message without an error:
// there is nothing to do yet, and receiverIdle is set. The error is how Receive ends.
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

// cancelOnAbort has Abort call cancel, until stop is called. stop calls cancel as well.
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

// sendFirst has sink take m, the first message, waits for that, and takes m out of the queue. The error is how Receive
// ends.
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

// removeOffered takes the first message, which the receiver has taken, out of the queue, unless Abort has done so.
func (b *Inbox) removeOffered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeOfferedLocked()
}

// removeOfferedLocked takes the first message, which the receiver has taken, out of the queue, unless Abort has done
// so. It is called with mu held.
func (b *Inbox) removeOfferedLocked() {
	if b.abortErr != nil {
		return
	}
	b.firstRefused = false
	m := b.pop()
	b.taken.Messages++
	b.taken.Bytes += m.Size()
}

// pop takes the first message out of the queue and returns it, and tells those that wait for room. It is called with
// mu held.
func (b *Inbox) pop() jsonrpc.Message {
	m := b.queue.Pop()
	b.queuedBytes -= m.Size()
	b.offeringFirst, b.dropOffered = false, false
	b.noteRemoval()
	return m
}

// endOffer ends the offer of the first message, if there is one, which was not taken: it stays the first, unless
// Remove has removed it meanwhile. It reports whether Remove has. It is called with mu held.
func (b *Inbox) endOffer() (removed bool) {
	removed = b.dropOffered
	if removed && b.abortErr == nil {
		b.pop()
	}
	b.offeringFirst, b.dropOffered = false, false
	return removed
}

// isOfferedRemoved reports whether the message that sink has not taken at once was removed meanwhile (Remove); it is
// gone then. If not, it is still being offered.
func (b *Inbox) isOfferedRemoved() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropOffered && b.endOffer()
}

// endErrLocked returns why nothing more may be put in, the error of Abort or End; nil: more may. It is called with mu
// held.
func (b *Inbox) endErrLocked() error {
	if b.abortErr != nil {
		return b.abortErr
	}
	return b.endErr
}

// hasRoom reports whether m may be queued beside what waits, by MaxMessages and MaxBytes. It is called with mu held.
func (b *Inbox) hasRoom(m jsonrpc.Message) bool {
	most := b.MaxMessages
	if most == 0 {
		most = defaultMaxMessages
	}
	n := b.queue.Len()
	return n < most && (n == 0 || b.MaxBytes == 0 || b.queuedBytes+m.Size() <= b.MaxBytes)
}

// noteRemoval is called when the queue has become shorter: those that wait for room look again, and NotifyBelow's
// channel is told if it is time. mu is held.
func (b *Inbox) noteRemoval() {
	b.wakeSenders()
	if b.low.notify != nil && b.low.isReached(b.waiting()) {
		b.notifyLow()
	}
}

// wakeSenders has those that wait for room look again. mu is held.
func (b *Inbox) wakeSenders() {
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// wakeReceiver has Receive look at the fields again. mu is held.
func (b *Inbox) wakeReceiver() {
	if b.wakeup != nil {
		signal(b.wakeup)
	}
}

// signal puts an element into c, unless c is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
