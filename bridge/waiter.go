package bridge

import (
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Taker takes a message that has come up: took is false if it does not, and
// then nothing has been done. more is false when it wants no others. mayWait says
// that it runs in the goroutine that is in Offer, and holds up nobody else by
// waiting; otherwise the goroutine belongs to others, so it must not wait for
// anybody, nor panic.
type Taker func(m jsonrpc.Message, mayWait bool) (took, more bool)

// ErrEnough is the error of an Offer whose Taker wants no more.
var ErrEnough = errors.New("bridge: no more messages are wanted")

// Offer is c.Recv, but for what take takes: while it waits, messages may be
// given to take in the goroutine in which they come up. What take does not take
// is returned. take is called by one goroutine at a time, and no more once Offer
// has returned. nil takes nothing.
//
// A Conn has it by a method of this name without c, else it is c.Recv.
func Offer(ctx context.Context, c PullConn, take Taker) (jsonrpc.Message, error) {
	if take != nil {
		if o, ok := c.(Offerer); ok {
			return o.Offer(ctx, take)
		}
	}
	return c.Recv(ctx)
}

// An Offerer is a Conn that has Offer, for those who look once and call it often.
type Offerer interface {
	Offer(context.Context, Taker) (jsonrpc.Message, error)
}

// A Waiter is where the receiver of a queue waits for what comes, and where
// those that bring it meet it: if it waits they may do its work, which spares a
// change of goroutine. One goroutine at a time may receive, any number bring.
type Waiter struct {
	from poller
	wake chan struct{} // holds one element when there is something to look at

	mu      sync.Mutex // held while from and take are called
	waiting bool
	ctx     context.Context // of the Offer that waits
	take    Taker           // of the Offer that waits; nil: none
	left    bool            // for the Offer: message and err
	message jsonrpc.Message
	err     error
}

// NewWaiter returns a Waiter. poll returns the next message, or error, if there
// is one; no two goroutines call it at a time, and it must not wait.
func NewWaiter(poll func() (m jsonrpc.Message, err error, ok bool)) *Waiter {
	w := new(Waiter)
	w.init(pollFunc(poll))
	return w
}

func (w *Waiter) init(from poller) { w.from, w.wake = from, make(chan struct{}, 1) }

// poller is the queue of a Waiter.
type poller interface {
	Poll() (m jsonrpc.Message, err error, ok bool)
}

type pollFunc func() (jsonrpc.Message, error, bool)

func (f pollFunc) Poll() (jsonrpc.Message, error, bool) { return f() }

// Offer returns the next message that take does not take, as soon as there is
// one. take may be nil.
func (w *Waiter) Offer(ctx context.Context, take Taker) (jsonrpc.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return jsonrpc.Message{}, err
		}
		w.mu.Lock()
		m, err, ok := w.from.Poll()
		if ok {
			w.mu.Unlock()
			return m, err
		}
		// What was brought since found us locked, and wakes us.
		w.waiting, w.ctx, w.take = true, ctx, take
		w.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
		w.mu.Lock()
		w.waiting, w.ctx, w.take = false, nil, nil
		m, err, ok = w.message, w.err, w.left
		w.message, w.err, w.left = jsonrpc.Message{}, nil, false
		w.mu.Unlock()
		if ok {
			return m, err
		}
	}
}

// maxBrought is how many messages one goroutine does the work of the receiver for,
// at a time: it has its own to do, and others may bring more and more.
const maxBrought = 32

// Arrived is called when the queue may have something to return, by a goroutine that
// is ready to do what the receiver would, and holds no locks that this may need.
func (w *Waiter) Arrived() {
	if !w.mu.TryLock() {
		w.Signal()
		return
	}
	defer w.mu.Unlock()
	for n := 0; w.waiting; n++ {
		if w.take == nil || n == maxBrought || w.ctx.Err() != nil {
			w.Signal()
			return
		}
		m, err, ok := w.from.Poll()
		if !ok {
			return
		}
		if err == nil {
			took, more := w.take(m, false)
			if took && more {
				continue
			}
			if took {
				m, err = jsonrpc.Message{}, ErrEnough
			}
		}
		w.waiting = false
		w.message, w.err, w.left = m, err, true
		w.Signal()
	}
}

// Signal is Arrived for one that has other things to do, or holds locks.
func (w *Waiter) Signal() { signal(w.wake) }

// Woken receives when there may be something to look at, for who has the Waiter's work done elsewhere.
func (w *Waiter) Woken() <-chan struct{} { return w.wake }
