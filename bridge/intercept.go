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

// Hooks look at the messages that pass a Conn, and may change, answer or swallow them. A nil hook passes everything. A
// hook is quick and waits for nobody, unless its comment says otherwise. The invalid message (jsonrpc.Message{})
// stands for none.
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

	// Sending is told of each message that is about to be sent, as Send has returned it. It may be called concurrently, and a second time
	// with a message if TrySend of the Conn was false.
	Sending func(out jsonrpc.Message)

	// Sent is told of each message that the peer has taken, as Send has returned
	// it. The peer's answer may have come before. It may be called concurrently.
	Sent func(out jsonrpc.Message)

	// Receive sees each message of the peer once. What it leaves in *m is received; the invalid message is not. A
	// reply is sent to the peer before that; nil: there is none. Calls do not overlap. It must not keep m.
	Receive func(m *jsonrpc.Message) (reply *jsonrpc.Message)

	// Ended is called, once, with the error with which Receive of the inner Conn has ended, and returns the one with
	// which Receive ends. It is not called for the errors of a Receive's ctx and Sink.
	Ended func(err error) error

	// Closed is called, once, when the inner Conn was closed, with the error of its Close, and returns that of Close.
	// It may wait.
	Closed func(err error) error
}

// Intercept returns a Conn that is c with the hooks h in between. It is the way to look at what is said over a Conn,
// and costs what the hooks cost.
//
// Replies of Hooks.Send are received in the order in which they were made, and after what the peer has sent before.
// They do not pass Hooks.Receive, nor do those of Hooks.Receive pass Hooks.Send, Sending and Sent.
func Intercept(c Conn, h Hooks) Conn {
	i := &interceptor{conn: c, hooks: h}
	if h.Send != nil {
		i.replies = &replyQueue{sinkLock: make(chan struct{}, 1)}
	}
	return i
}

// interceptor is the Conn that Intercept returns.
type interceptor struct {
	conn    Conn        // the Conn that is wrapped
	hooks   Hooks       // the hooks that Intercept was called with
	replies *replyQueue // hands the receiver what Hooks.Send has replied; nil: there is no Hooks.Send

	// received is a message of the peer, as Hooks.Receive has left it, while it is handed on, and, with offerAgain,
	// until it is offered again. Only the Sink of Receive uses it and the fields below.
	received    jsonrpc.Message
	reply       *jsonrpc.Message // what Hooks.Receive has answered to the message in received, for the peer; nil: nothing, or it was sent
	offerAgain  bool             // received was not taken: the Conn offers the peer's message again
	receivedKey jsonrpc.Key      // while offerAgain: the Key of the message in received, as the peer has sent it
	endErr      error            // how the Conn has ended; nil: it has not. Only Receive uses it

	closeOnce sync.Once // closes the Conn once, however often Close is called
	closeErr  error     // the error that Close returns
}

// Send implements Conn: it calls Hooks.Send and does what that says. It calls Hooks.Sending before the inner Conn sends, and
// Hooks.Sent when it has sent.
func (i *interceptor) Send(ctx context.Context, m jsonrpc.Message) error {
	if i.hooks.Send != nil {
		if done, err := i.callSendHook(ctx, &m); done {
			return err
		}
	}
	if i.hooks.Sending != nil {
		i.hooks.Sending(m)
	}
	err := i.conn.Send(ctx, m)
	if err == nil && i.hooks.Sent != nil {
		i.hooks.Sent(m)
	}
	return err
}

// callSendHook calls Hooks.Send with *m, and puts what is to be sent into it. done: nothing is to be sent, and err is
// what Send returns. It is no part of Send, whose stack many others stand on: what they need together is memory of
// each session.
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

// tryCallSendHook calls Hooks.Send with *m for TrySend, and puts what is to be sent into it. done: nothing is to be
// sent, and taken is what TrySend returns.
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

// TrySend implements Conn: it is Send where that needs no waiting. If it returns false, Hooks.Send sees the message
// again.
func (i *interceptor) TrySend(m jsonrpc.Message) bool {
	if i.hooks.Send != nil {
		if done, taken := i.tryCallSendHook(&m); done {
			return taken
		}
	}
	if i.hooks.Sending != nil {
		i.hooks.Sending(m)
	}
	taken := i.conn.TrySend(m)
	if taken && i.hooks.Sent != nil {
		i.hooks.Sent(m)
	}
	return taken
}

// Receive implements Conn: it receives from the inner Conn by way of the hooks, and the replies of Hooks.Send.
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

// receive receives from the Conn by way of the hooks. over: the Conn has ended, and not only ctx or sink has ended the
// Receive.
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

// receiveBoth does the work of Receive where there are two who bring messages: the inner Conn, and the replies of
// Hooks.Send.
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

// Close implements Conn: it closes the inner Conn, once, and calls Hooks.Closed.
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

// interceptSink is the Sink with which an interceptor receives from its Conn.
type interceptSink struct {
	*interceptor
	sink    Sink  // the Sink of the caller of Receive
	refused error // the last error of sendReceived, to tell it from an end of the Conn; nil: it had none
}

// callReceiveHook calls Hooks.Receive with a message of the peer, unless the hook has seen it, and puts what is left
// of it into received and reply. It returns false if the hook has left neither.
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

// keepReceived keeps received, which was made of m, the peer's message, because m will be offered again.
func (s *interceptSink) keepReceived(m *jsonrpc.Message) { s.offerAgain, s.receivedKey = true, m.Key() }

// clearReceived forgets received: it was taken, or is not wanted any more.
func (s *interceptSink) clearReceived() {
	s.received = jsonrpc.Message{}
	if s.offerAgain {
		s.offerAgain, s.receivedKey = false, jsonrpc.Key{}
	}
}

// TrySend implements Sink: it calls Hooks.Receive, unless that has seen the message, and hands on what is left, if that
// needs no waiting; false: the message comes again.
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

// trySendReceived sends the peer what Hooks.Receive has replied, and hands received on, as far as that needs no
// waiting; false: something is left to do.
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

// Send implements Sink: it calls Hooks.Receive, unless it has seen the message, and hands on what is left.
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

// sendReceived sends the peer what Hooks.Receive has replied, if anything, and then hands received on to sink.
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

// clearWhenPassed returns a ctx for a Send that may go on until the message is answered (Exchange): as soon as the
// server has the message, received is forgotten, since nobody offers it again.
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

// maxQueuedReplies is how many replies a replyQueue keeps while nobody receives. Whoever sends one more has to wait.
const maxQueuedReplies = 16

// replyQueue hands the replies of Hooks.Send to the receiver of the Conn, between the messages of the peer.
//
// sinkLock is held while the receiver's Sink is called, mu while the fields are looked at; sinkLock comes first. The
// goroutine whose Send to the Conn has led to a reply hands it on or queues it, and may have to wait for that as any Send
// may: no other goroutine is needed.
type replyQueue struct {
	sinkLock chan struct{} // a lock whose wait can be given up: holds one element while somebody calls the receiver's Sink

	mu          sync.Mutex                  // guards all fields but sinkLock
	queued      fifo.Queue[jsonrpc.Message] // replies that wait for a Receive
	sink        Sink                        // the Sink of the Receive that goes on; nil: none does
	stopReceive context.CancelFunc          // ends the Receive that goes on; nil: none does
	refused     error                       // the error with which sink has refused a reply; nil: none
	cancelSend  context.CancelFunc          // ends the Send of sink that goes on with a reply; nil: none does
	endErr      error                       // why there will be no Receive any more; nil: there may be one
	changed     chan struct{}               // closed when sink or endErr has changed; nil: nobody waits for that
}

// tryLockSink takes sinkLock if nobody has it, and reports whether it has.
func (r *replyQueue) tryLockSink() bool {
	select {
	case r.sinkLock <- struct{}{}:
		return true
	default:
		return false
	}
}

// lockSink waits for sinkLock, the right to call the receiver's Sink; unlockSink gives it back. The error is ctx's. It
// takes a lock that is free even if ctx is done.
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

// unlockSink gives sinkLock back.
func (r *replyQueue) unlockSink() { <-r.sinkLock }

// trySend hands a reply to the receiver if the receiver takes it at once. false: it does not, or nobody receives.
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

// send hands a reply to the receiver, or keeps it for the next Receive. It waits while maxQueuedReplies are kept.
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

// sendOrKeep hands a reply to sink, or keeps it if there is none; errNoSink says that there is no room for that. A
// reply that sink refuses is kept, too, and ends the Receive. The caller has sinkLock.
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

// beginReceive hands a new Receive's sink the replies that were kept, and then lets others use sink. stop ends that
// Receive. The error is how the Receive ends at once.
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

// endReceive is called when a Receive has returned. When endReceive returns, sink is called no more. refused is the
// error with which sink has refused a reply; nil: none. over: there will be no other Receive.
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

// abort ends all that waits, because the Conn is being closed.
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

// wakeWaiting has those that wait in send look again. It is called with mu held.
func (r *replyQueue) wakeWaiting() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// errNoSink says that nobody receives, and no more replies can be kept.
var errNoSink = errors.New("nobody receives")
