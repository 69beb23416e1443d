package bridge

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A StallWatch hands the messages of a peer to a Sink, for a Conn that reads in the
// goroutine of Receive. While the Sink does not take a message, nobody reads from the peer, so
// the peer's end has to be found out in another way. A peer that is gone must not keep
// its server, nor its place, for as long as the server reads nothing.
//
// A StallWatch has one timer as long as messages go, and not one for each of them.
type StallWatch struct {
	ctx        context.Context    // of the Receive, or one that ends with it
	cancel     context.CancelFunc // of ctx, when the peer has left
	peerEndErr func() error       // nil: nothing can be known
	gaveUp     atomic.Bool        // Send returns errHungUp

	sends  atomic.Uint64  // odd while one goes on
	armed  atomic.Bool    // a look is to come, or goes on
	checks sync.WaitGroup // looks that go on, or are to come

	mu       sync.Mutex
	finished bool        // Stop was called
	timer    *time.Timer // of the next look; nil: there was none yet

	checkedSends uint64    // sends at the last look; only giveUpIfStalled uses it, and stalledSince
	stalledSince time.Time // when a look first found that the peer has hung up and the Sink takes nothing; zero: none did
}

// errHungUp is how Receive ends when the receiver takes nothing more, and the peer does
// not wait for it either: it has hung up.
var errHungUp = errors.New("the server has taken nothing for minutes after the end of input")

// stallCheckInterval is how often a StallWatch looks after a peer while nothing is taken from it.
const stallCheckInterval = time.Second

// goneStallTimeout and eofStallTimeout are how long a Sink may take nothing, once the peer is
// gone, and once it has sent its last but may still read: the receiver may only be
// busy, or still starting.
const (
	goneStallTimeout = 10 * time.Second
	eofStallTimeout  = 5 * time.Minute
)

// NewStallWatch returns a StallWatch for one Receive, whose ctx it is. peerEndErr tells of the
// end of the peer: nil as long as nothing is known of that, io.EOF once the peer sends nothing
// more than what waits to be read, and another error once it is gone. It does not wait, and is
// called by one goroutine at a time. If peerEndErr is nil, nothing can be known.
func NewStallWatch(ctx context.Context, peerEndErr func() error) *StallWatch {
	w := &StallWatch{ctx: ctx, peerEndErr: peerEndErr}
	if peerEndErr != nil {
		w.ctx, w.cancel = context.WithCancel(ctx)
	}
	return w
}

// Send is sink.Send with the ctx of the Receive. One goroutine at a time calls it. It gives up,
// with an error, when sink does not take m for 10 seconds after the peer is gone, or for 5
// minutes after the peer has sent its last.
func (w *StallWatch) Send(sink Sink, m jsonrpc.Message) error {
	if w.peerEndErr == nil {
		return sink.Send(w.ctx, m)
	}
	w.sends.Add(1)
	if w.armed.CompareAndSwap(false, true) {
		w.setTimer()
	}
	err := sink.Send(w.ctx, m)
	w.sends.Add(1)
	if err != nil && w.gaveUp.Load() {
		return errHungUp
	}
	return err
}

// setTimer sets the timer.
func (w *StallWatch) setTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.checks.Add(1)
	w.timer = time.AfterFunc(stallCheckInterval, w.giveUpIfStalled)
}

// giveUpIfStalled is what the timer calls: it ends the Receive if nothing is taken for too long from a peer that has left.
func (w *StallWatch) giveUpIfStalled() {
	defer w.checks.Done()
	n := w.sends.Load()
	quiet := n == w.checkedSends
	w.checkedSends = n
	switch sending := n%2 == 1; {
	case !quiet:
		w.stalledSince = time.Time{}
	case sending:
		if w.mustGiveUp() && w.sends.Load() == n {
			w.gaveUp.Store(true)
			w.cancel()
			return
		}
	default: // nothing goes
		w.armed.Store(false)
		if w.sends.Load() == n || !w.armed.CompareAndSwap(false, true) {
			return
		}
	}
	w.setTimer()
}

// mustGiveUp reports whether the peer is gone, or has sent its last, and the Sink has taken nothing for too long since.
func (w *StallWatch) mustGiveUp() bool {
	err := w.peerEndErr()
	if err == nil {
		return false
	}
	if w.stalledSince.IsZero() {
		w.stalledSince = time.Now()
	}
	patience := goneStallTimeout
	if errors.Is(err, io.EOF) {
		patience = eofStallTimeout
	}
	return time.Since(w.stalledSince) >= patience
}

// Stop ends the watch, when nothing more is sent. It waits for a look that goes on.
func (w *StallWatch) Stop() {
	w.mu.Lock()
	w.finished = true
	if w.timer != nil && w.timer.Stop() {
		w.checks.Done()
	}
	w.mu.Unlock()
	w.checks.Wait()
	if w.cancel != nil {
		w.cancel()
	}
}
