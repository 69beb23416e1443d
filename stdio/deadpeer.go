package stdio

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
)

// deadAfter is how long a TCP peer may leave unacknowledged what it was sent.
const deadAfter = 50 * time.Second

var errDeadPeer = errors.New("the connection was lost: the peer does not answer any more")

// deadPeer notices that a TCP peer is gone while something is on its way to
// it: keep-alive looks after idle connections only, and the system goes on
// trying for a quarter of an hour. (Linux could be told how long to try,
// TCP_USER_TIMEOUT, but would then also give up a peer that is alive and busy.)
type deadPeer struct {
	nc        net.Conn
	found     func() // called once at most
	readState func(net.Conn) (silent time.Duration, waiting bool)
	timer     lazytimer.Timer // is set while something is on its way; calls check
	dead      atomic.Bool
}

// watchPeer returns a deadPeer that calls found in a goroutine of its own; nil: the
// connection is not one of TCP.
func watchPeer(nc net.Conn, found func()) *deadPeer {
	if _, ok := nc.(*net.TCPConn); !ok {
		return nil
	}
	return newDeadPeer(nc, found, awaitingAck)
}

func newDeadPeer(nc net.Conn, found func(), look func(net.Conn) (time.Duration, bool)) *deadPeer {
	d := &deadPeer{nc: nc, found: found, readState: look}
	d.timer.Do = d.check
	return d
}

// sending says that something is about to be sent. A nil deadPeer does nothing.
func (d *deadPeer) sending() {
	if d != nil {
		d.timer.AtLatest(time.Now().Add(deadAfter))
	}
}

// check looks whether the peer has acknowledged anything since the timer was set.
func (d *deadPeer) check() {
	switch silent, waiting := d.readState(d.nc); {
	case waiting && silent >= deadAfter:
		if d.dead.CompareAndSwap(false, true) {
			d.found()
		}
	case waiting:
		d.timer.After(deadAfter)
	}
}

// stop ends it; afterwards found is not called any more.
func (d *deadPeer) stop() {
	if d != nil {
		d.timer.Stop()
	}
}
