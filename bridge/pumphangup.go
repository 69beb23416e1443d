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

// hangUpEvery is how often a Pump looks after a client while the server does not take
// what that has sent.
const hangUpEvery = time.Second

// errHungUp ends the client's direction when the server takes nothing more, and the
// client does not wait for it either.
var errHungUp = errors.New("the client has hung up, and the server reads nothing more")

// lookout looks after the client while the server does not take a message: nobody
// receives from the client meanwhile, so its end has to be found out in another way. It
// must not keep its server, nor its place, for as long as the server reads nothing.
//
// It has a timer as long as messages go, and not one for each of them.
type lookout struct {
	hungUp func() error       // of the client; nil: nothing can be known
	drain  time.Duration      // how long a client is waited for that has sent its last
	cancel context.CancelFunc // of the ctx of all Sends, when the client has left
	left   atomic.Bool

	sends atomic.Uint64 // odd while one goes on
	armed atomic.Bool
	looks sync.WaitGroup

	mu    sync.Mutex
	over  bool
	timer *time.Timer

	seen  uint64    // sends at the last look; only look uses it, and since
	since time.Time // when it was found out that the client has sent its last
}

func newLookout(client Conn, drain time.Duration, cancel context.CancelFunc) *lookout {
	return &lookout{hungUp: HungUp(client), drain: orDefault(drain, DefaultDrain), cancel: cancel}
}

// send is server.Send. It gives up with errHungUp when the client is gone, or it is
// drain ago that it has sent its last, as it would be waited for answers then.
func (l *lookout) send(ctx context.Context, server Conn, m jsonrpc.Message) error {
	if l.hungUp == nil {
		return server.Send(ctx, m)
	}
	l.sends.Add(1)
	if l.armed.CompareAndSwap(false, true) {
		l.again()
	}
	err := server.Send(ctx, m)
	l.sends.Add(1)
	if err != nil && l.left.Load() {
		return errHungUp
	}
	return err
}

// again sets the timer.
func (l *lookout) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.looks.Add(1)
	l.timer = time.AfterFunc(hangUpEvery, l.look)
}

func (l *lookout) look() {
	defer l.looks.Done()
	n := l.sends.Load()
	quiet := n == l.seen
	l.seen = n
	switch sending := n%2 == 1; {
	case !quiet:
		l.since = time.Time{}
	case sending:
		if l.leaves() {
			l.left.Store(true)
			l.cancel()
			return
		}
	default: // nothing goes
		l.armed.Store(false)
		if l.sends.Load() == n || !l.armed.CompareAndSwap(false, true) {
			return
		}
	}
	l.again()
}

func (l *lookout) leaves() bool {
	err := l.hungUp()
	if err == nil {
		return false
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	return !errors.Is(err, io.EOF) || time.Since(l.since) >= l.drain
}

// stop is called when nothing more is sent. It waits for a look that goes on.
func (l *lookout) stop() {
	l.mu.Lock()
	l.over = true
	if l.timer != nil && l.timer.Stop() {
		l.looks.Done()
	}
	l.mu.Unlock()
	l.looks.Wait()
}
