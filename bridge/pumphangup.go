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

// gonePatience and lastPatience are how long a server may take nothing, once the client
// is gone, and once it has sent its last but may still read: the server may only be
// busy, or still starting.
const (
	gonePatience = 10 * time.Second
	lastPatience = 5 * time.Minute
)

// errHungUp ends the client's direction when the server takes nothing more, and the
// client does not wait for it either.
var errHungUp = errors.New("the server has taken nothing for minutes after the end of input")

// lookout looks after the client while the server does not take a message: nobody
// receives from the client meanwhile, so its end has to be found out in another way. It
// must not keep its server, nor its place, for as long as the server reads nothing.
//
// It has a timer as long as messages go, and not one for each of them.
type lookout struct {
	hungUp func() error       // of the client; nil: nothing can be known
	cancel context.CancelFunc // of the ctx of all Sends, when the client has left
	left   atomic.Bool

	sends atomic.Uint64 // odd while one goes on
	armed atomic.Bool
	looks sync.WaitGroup

	mu    sync.Mutex
	over  bool
	timer *time.Timer

	seen  uint64    // sends at the last look; only look uses it, and since
	since time.Time // since when the server is known to take nothing from a client that has hung up
}

func newLookout(client PullConn, cancel context.CancelFunc) *lookout {
	return &lookout{hungUp: HungUp(client), cancel: cancel}
}

// send is server.Send. It gives up with errHungUp when the server takes nothing for so
// long though the client has hung up.
func (l *lookout) send(ctx context.Context, server PullConn, m jsonrpc.Message) error {
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
		if l.leaves() && l.sends.Load() == n {
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
	patience := gonePatience
	if errors.Is(err, io.EOF) {
		patience = lastPatience
	}
	return time.Since(l.since) >= patience
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
