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
	ctx        context.Context    // the ctx of sink's Sends: that of the Receive, or, if peerEndErr is set, one below it
	cancel     context.CancelFunc // ends ctx, when the watch gives up or stops; nil: peerEndErr is nil
	peerEndErr func() error       // tells of the peer's end, see NewStallWatch; nil: nothing can be known
	gaveUp     atomic.Bool        // the watch has ended ctx, so Send returns errHungUp

	sends  atomic.Uint64  // counts beginnings and ends of Sends: odd while one goes on
	armed  atomic.Bool    // the timer is set, or giveUpIfStalled runs; stays true once the watch has given up
	checks sync.WaitGroup // waits for runs of giveUpIfStalled that go on, or are to come

	mu       sync.Mutex  // guards finished and timer
	finished bool        // Stop was called: the timer is not set any more
	timer    *time.Timer // calls giveUpIfStalled; nil: it was never set

	checkedSends uint64 // sends at the last look; only giveUpIfStalled uses it
	// since when a Send has gone on although the peer has ended, as far as looks have found; zero: none has. Only
	// giveUpIfStalled uses it
	stalledSince time.Time
}

// errHungUp is the error of StallWatch.Send, and so of a Receive, when the Sink has taken nothing for too long after
// the peer's end.
var errHungUp = errors.New("the server has taken nothing for minutes after the end of input")

// stallCheckInterval is how often a StallWatch looks whether the peer has ended, while the Sink does not take a
// message.
const stallCheckInterval = time.Second

const (
	// for how long the Sink may take nothing once the peer is gone: the receiver may only be busy, or still starting
	goneStallTimeout = 10 * time.Second
	eofStallTimeout  = 5 * time.Minute // for how long the Sink may take nothing once the peer sends nothing more but may still read
)

// NewStallWatch returns a StallWatch for one Receive, whose ctx it is. peerEndErr tells of the
// end of the peer: nil as long as nothing is known of that, io.EOF once the peer sends nothing
// more than what waits to be read, and another error once it is gone. It does not wait, and is
// called by one goroutine at a time. If peerEndErr is nil, nothing can be known, and Send never gives up.
func NewStallWatch(ctx context.Context, peerEndErr func() error) *StallWatch {
	w := &StallWatch{ctx: ctx, peerEndErr: peerEndErr}
	if peerEndErr != nil {
		w.ctx, w.cancel = context.WithCancel(ctx)
	}
	return w
}

// Send calls Send of sink with a ctx that ends with the Receive's. Only one goroutine at a time may call it. It gives
// up, with errHungUp, when sink does not take m for 10 seconds after the peer is gone, or for 5 minutes after the peer
// has sent its last.
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

// setTimer sets the timer to stallCheckInterval from now, unless Stop was called.
func (w *StallWatch) setTimer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return
	}
	w.checks.Add(1)
	w.timer = time.AfterFunc(stallCheckInterval, w.giveUpIfStalled)
}

// giveUpIfStalled is called by the timer: it gives up if the Sink has taken nothing for too long from a peer that has
// ended. Otherwise it sets the timer again, as long as messages go.
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

// mustGiveUp reports whether the peer is gone, or has sent its last, and the Sink has taken nothing for too long since
// a look has found that.
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

// Stop ends the watch; nothing may be sent any more. It waits for a run of giveUpIfStalled that goes on.
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
