package bridge

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/fifo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Hooks look at the messages that pass a Conn, and may change, answer or swallow them.
// A nil hook passes everything. Hooks are quick and wait for nobody, unless it says
// otherwise. The invalid message (jsonrpc.Message{}) stands for none.
type Hooks struct {
	// Send sees a message on its way to the peer. out is sent in its place. A valid reply
	// goes to the receiver, as if the peer had sent it; out is invalid then. refused is
	// what Send of the Conn returns in place of sending anything. Without all
	// three the message is swallowed.
	//
	// Send may be called concurrently. It sees a message a second time if TrySend of
	// the Conn was false, and must say the same of it then; what is to happen once
	// belongs into Sent.
	Send func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error)

	// Sent is told of each message that the peer has taken, as Send has returned
	// it. The peer's answer may have come before. It may be called concurrently.
	Sent func(out jsonrpc.Message)

	// Receive sees each message of the peer once. What it leaves in m is received; the
	// invalid message is not. A reply is sent to the peer before that; nil: there is
	// none. Calls do not overlap. It must not keep m.
	Receive func(m *jsonrpc.Message) (reply *jsonrpc.Message)

	// Ended sees the error with which the Conn itself has ended, once, and returns what
	// Receive says. It does not see the errors of a Receive's ctx and Sink.
	Ended func(err error) error

	// Closed is called, once, when Close of the Conn has returned err, and returns what
	// Close says. It may wait.
	Closed func(err error) error
}

// Intercept returns a Conn that is c with h in between. It is the way to look at what is
// said over a Conn, and costs what the hooks cost.
//
// Replies of Hooks.Send are received in the order in which they were made, and after
// what the peer has sent before. They do not pass Hooks.Receive, nor those of
// Hooks.Receive Hooks.Send.
func Intercept(c Conn, h Hooks) Conn {
	i := &interceptor{conn: c, hooks: h}
	if h.Send != nil {
		i.replies = &replyQueue{sinkLock: make(chan struct{}, 1)}
	}
	return i
}

type interceptor struct {
	conn    Conn
	hooks   Hooks
	replies *replyQueue // to the receiver; nil: there are none

	// A message of the peer, as Hooks.Receive has left it, while it is handed on, and while it
	// is kept because it was not taken: it is offered again. Only the Sink of Receive uses it.
	received    jsonrpc.Message
	reply       *jsonrpc.Message // nil: there is none, or it was sent
	offerAgain  bool             // received is kept
	receivedKey jsonrpc.Key      // while offerAgain: of what the peer has sent
	endErr      error            // how the Conn has ended; only Receive uses it

	closeOnce sync.Once
	closeErr  error
}

func (i *interceptor) Send(ctx context.Context, m jsonrpc.Message) error {
	if i.hooks.Send != nil {
		if done, err := i.callSendHook(ctx, &m); done {
			return err
		}
	}
	err := i.conn.Send(ctx, m)
	if err == nil && i.hooks.Sent != nil {
		i.hooks.Sent(m)
	}
	return err
}

// callSendHook calls the hook, and puts what is to be sent into m. done says that nothing is.
//
// It is no part of Send, whose stack many others stand on: what they need together is memory
// of each session.
func (i *interceptor) callSendHook(ctx context.Context, m *jsonrpc.Message) (done bool, err error) {
	out, reply, refused := i.hooks.Send(*m)
	switch {
	case refused != nil:
		return true, refused
	case reply.Kind() != jsonrpc.Invalid:
		return true, i.replies.send(ctx, reply)
	case out.Kind() == jsonrpc.Invalid:
		return true, ctx.Err()
	}
	*m = out
	return false, nil
}

// tryCallSendHook is callSendHook for TrySend.
func (i *interceptor) tryCallSendHook(m *jsonrpc.Message) (done, taken bool) {
	out, reply, refused := i.hooks.Send(*m)
	switch {
	case refused != nil:
		return true, false
	case reply.Kind() != jsonrpc.Invalid:
		return true, i.replies.trySend(reply)
	case out.Kind() == jsonrpc.Invalid:
		return true, true
	}
	*m = out
	return false, false
}

func (i *interceptor) TrySend(m jsonrpc.Message) bool {
	if i.hooks.Send != nil {
		if done, taken := i.tryCallSendHook(&m); done {
			return taken
		}
	}
	taken := i.conn.TrySend(m)
	if taken && i.hooks.Sent != nil {
		i.hooks.Sent(m)
	}
	return taken
}

func (i *interceptor) Receive(ctx context.Context, sink Sink) error {
	switch {
	case i.endErr != nil:
		return i.endErr
	case i.replies != nil:
		return i.receiveBoth(ctx, sink)
	case i.hooks.Receive == nil && i.hooks.Ended == nil:
		return i.conn.Receive(ctx, sink)
	}
	err, _ := i.receive(ctx, sink)
	return err
}

// receive receives from the Conn; over: the Conn has ended.
func (i *interceptor) receive(ctx context.Context, sink Sink) (err error, over bool) {
	s := &interceptSink{interceptor: i, sink: sink}
	err = i.conn.Receive(ctx, s)
	if ctx.Err() != nil || s.refused != nil && err == s.refused {
		return err, false
	}
	if i.hooks.Ended != nil {
		err = i.hooks.Ended(err)
	}
	i.endErr = err
	return err, true
}

// receiveBoth receives what the peer sends, and the replies that Hooks.Send has made in its
// place.
func (i *interceptor) receiveBoth(parent context.Context, sink Sink) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	if err := i.replies.beginReceive(ctx, cancel, sink); err != nil {
		return err
	}
	err, over := i.receive(ctx, sink)
	refused := i.replies.endReceive(over)
	if refused != nil && parent.Err() == nil {
		return refused
	}
	return err
}

func (i *interceptor) Close(reason error) error {
	i.closeOnce.Do(func() {
		if i.replies != nil {
			i.replies.abort()
		}
		i.closeErr = i.conn.Close(reason)
		if i.hooks.Closed != nil {
			i.closeErr = i.hooks.Closed(i.closeErr)
		}
	})
	return i.closeErr
}

// interceptSink is what the Conn sends to in one Receive.
type interceptSink struct {
	*interceptor
	sink    Sink
	refused error // the latest error of sendReceived; nil: it had none
}

// callReceiveHook shows the hook a message, unless the hook has seen it. It returns false if the
// hook has left nothing to do for the message.
func (s *interceptSink) callReceiveHook(m *jsonrpc.Message) bool {
	if s.offerAgain {
		if s.receivedKey == m.Key() {
			return true
		}
		s.clearReceived() // what was offered before was withdrawn
		s.reply = nil
	}
	s.received = *m
	if s.hooks.Receive != nil {
		s.reply = s.hooks.Receive(&s.received)
	}
	return s.received.Kind() != jsonrpc.Invalid || s.reply != nil
}

// keepReceived keeps what the hook has made of m, the peer's message, until that is offered again.
func (s *interceptSink) keepReceived(m *jsonrpc.Message) { s.offerAgain, s.receivedKey = true, m.Key() }

// clearReceived lets go of the message that the hook has seen.
func (s *interceptSink) clearReceived() {
	s.received = jsonrpc.Message{}
	if s.offerAgain {
		s.offerAgain, s.receivedKey = false, jsonrpc.Key{}
	}
}

func (s *interceptSink) TrySend(m jsonrpc.Message) bool {
	if !s.callReceiveHook(&m) {
		return true
	}
	if !s.trySendReceived() {
		s.keepReceived(&m)
		return false
	}
	s.clearReceived()
	return true
}

// trySendReceived is sendReceived where that needs no waiting.
func (s *interceptSink) trySendReceived() bool {
	if s.reply != nil {
		if !s.conn.TrySend(*s.reply) {
			return false
		}
		s.reply = nil
	}
	if s.received.Kind() == jsonrpc.Invalid {
		return true
	}
	if s.replies != nil {
		if !s.replies.tryLockSink() {
			return false
		}
		defer s.replies.unlockSink()
	}
	return s.sink.TrySend(s.received)
}

func (s *interceptSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if !s.callReceiveHook(&m) {
		return nil
	}
	if max(m.Size(), s.received.Size()) > budget.UncountedBytes { // only s keeps a long message meanwhile: clearWhenPassed has it let go of
		s.keepReceived(&m)
		m = jsonrpc.Message{}
		ctx = s.clearWhenPassed(ctx)
	}
	if s.refused = s.sendReceived(ctx); s.refused == nil {
		s.clearReceived()
	} else if m.Kind() != jsonrpc.Invalid {
		s.keepReceived(&m)
	}
	return s.refused
}

// sendReceived hands on what the hook has made of a message; before that it sends the hook's
// reply to the peer.
func (s *interceptSink) sendReceived(ctx context.Context) error {
	if s.reply != nil {
		if err := s.conn.Send(ctx, *s.reply); err != nil {
			return err
		}
		s.reply = nil
	}
	if s.received.Kind() == jsonrpc.Invalid {
		return nil
	}
	if s.replies != nil {
		if err := s.replies.lockSink(ctx); err != nil {
			return err
		}
		defer s.replies.unlockSink()
	}
	return s.sink.Send(ctx, s.received)
}

// clearWhenPassed returns the ctx of a Send that may go on until the message is answered
// (Exchange): once the server has the message it is not offered again, and is let go of.
func (s *interceptSink) clearWhenPassed(ctx context.Context) context.Context {
	passed, ok := ctx.Value(passedKey{}).(func(int))
	if !ok {
		return ctx
	}
	return WithPassed(ctx, func(kept int) {
		s.clearReceived()
		passed(kept)
	})
}

// maxQueuedReplies is how many replies wait for a Receive.
const maxQueuedReplies = 16

// replyQueue hands what an interceptor says itself to the receiver, between the messages of
// the peer.
//
// sinkLock is held while the receiver's Sink is called, mu while the fields are looked at;
// sinkLock comes first. Who makes a reply hands it on itself; it waits for that as in
// Send of a Conn, so that nothing needs a goroutine.
type replyQueue struct {
	sinkLock chan struct{} // a lock whose wait can be given up: holds one element while the receiver's Sink is called

	mu          sync.Mutex
	queued      fifo.Queue[jsonrpc.Message] // while nobody receives
	sink        Sink                        // of the Receive that goes on
	stopReceive context.CancelFunc          // ends that Receive
	refused     error                       // why sink did not take a reply
	cancelSend  context.CancelFunc          // of the ctx of a Send of sink that hands on a reply; nil: none does
	endErr      error                       // why there will be no Receive any more; nil: there may be
	changed     chan struct{}               // closed when sink or endErr changes; nil: nobody waits for it
}

// tryLockSink is lockSink where that needs no waiting. It reports whether it has locked.
func (r *replyQueue) tryLockSink() bool {
	select {
	case r.sinkLock <- struct{}{}:
		return true
	default:
		return false
	}
}

// lockSink waits for the right to call the receiver's Sink, which one goroutine has at a time,
// until unlockSink. It takes a lock that is free even if ctx is done.
func (r *replyQueue) lockSink(ctx context.Context) error {
	if r.tryLockSink() {
		return nil
	}
	select {
	case r.sinkLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *replyQueue) unlockSink() { <-r.sinkLock }

// trySend is send where that needs no waiting.
func (r *replyQueue) trySend(m jsonrpc.Message) bool {
	if !r.tryLockSink() {
		return false
	}
	defer r.unlockSink()
	r.mu.Lock()
	sink := r.sink
	r.mu.Unlock()
	return sink != nil && sink.TrySend(m)
}

// send hands a reply to the receiver, or keeps it for the next one. It waits while too many are
// kept.
func (r *replyQueue) send(ctx context.Context, m jsonrpc.Message) error {
	for {
		if err := r.lockSink(ctx); err != nil {
			return err
		}
		err := r.sendOrKeep(ctx, m)
		r.unlockSink()
		if err != errNoSink {
			return err
		}
		r.mu.Lock()
		if r.sink != nil || r.endErr != nil {
			r.mu.Unlock()
			continue
		}
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendOrKeep sends a reply to sink, or keeps it until there is one: errNoSink says that there
// is no room. It is called between lockSink and unlockSink.
func (r *replyQueue) sendOrKeep(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	handing, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	sink, over := r.sink, r.endErr
	switch {
	case over != nil:
	case sink != nil:
		r.cancelSend = cancel
	case r.queued.Len() >= maxQueuedReplies:
		over = errNoSink
	default:
		r.queued.Push(m)
	}
	r.mu.Unlock()
	if over != nil || sink == nil {
		return over
	}
	err := sink.Send(handing, m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelSend = nil
	switch {
	case err == nil:
	case r.endErr != nil:
		return r.endErr
	case ctx.Err() != nil:
		return ctx.Err()
	default: // as if the peer had sent it: the next Receive begins with it
		r.queued.Push(m)
		r.refused, r.sink = err, nil
		r.stopReceive()
	}
	return nil
}

// beginReceive begins a Receive: it hands on what has waited for it.
func (r *replyQueue) beginReceive(ctx context.Context, stop context.CancelFunc, sink Sink) error {
	if err := r.lockSink(ctx); err != nil {
		return err
	}
	defer r.unlockSink()
	for {
		r.mu.Lock()
		if r.queued.Len() == 0 || r.endErr != nil { // then the Conn says how it ends
			r.sink, r.stopReceive, r.refused = sink, stop, nil
			r.wakeWaiting()
			r.mu.Unlock()
			return nil
		}
		m := r.queued.Rest()[0]
		handing, cancel := context.WithCancel(ctx)
		r.cancelSend = cancel
		r.mu.Unlock()
		var err error
		if !sink.TrySend(m) {
			err = sink.Send(handing, m)
		}
		cancel()
		r.mu.Lock()
		r.cancelSend = nil
		if err == nil {
			r.queued.Pop()
		} else if r.endErr != nil {
			err = r.endErr
		}
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// endReceive ends a Receive. It returns when sink is called no more, and why that has refused
// a reply.
func (r *replyQueue) endReceive(over bool) (refused error) {
	r.mu.Lock()
	r.sink = nil
	if over && r.endErr == nil {
		r.endErr = io.ErrClosedPipe
	}
	if r.cancelSend != nil {
		r.cancelSend()
	}
	r.wakeWaiting()
	r.mu.Unlock()
	r.sinkLock <- struct{}{}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.unlockSink()
	r.stopReceive = nil
	return r.refused
}

// abort ends all that waits, because the Conn is closed.
func (r *replyQueue) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endErr == nil {
		r.endErr = io.ErrClosedPipe
	}
	if r.cancelSend != nil {
		r.cancelSend()
	}
	r.wakeWaiting()
}

// wakeWaiting wakes the replies that wait for a Receive. It is called with mu held.
func (r *replyQueue) wakeWaiting() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

var errNoSink = errors.New("nobody receives") // and no more replies can be kept
