package stdio

import (
	"errors"
	"net"
	"sync"
	"time"
)

// deadAfter is how long a TCP peer may leave unacknowledged what it was sent.
const deadAfter = 50 * time.Second

var errDeadPeer = errors.New("the connection was lost: the peer does not answer any more")

// deadPeer notices that a TCP peer is gone while something is on its way to
// it: keep-alive looks after idle connections only, and the system goes on
// trying for a quarter of an hour. (Linux could be told how long to try,
// TCP_USER_TIMEOUT, but would then also give up a peer that is alive and busy.)
type deadPeer struct {
	nc    net.Conn
	found func() // called once at most, in a goroutine of its own
	look  func(net.Conn) (silent time.Duration, waiting bool)

	mu    sync.Mutex
	timer *time.Timer
	armed bool
	ended bool
}

func watchPeer(nc net.Conn, found func()) *deadPeer {
	if _, ok := nc.(*net.TCPConn); !ok {
		return nil
	}
	return &deadPeer{nc: nc, found: found, look: unacknowledged}
}

// sending says that something is about to be sent. A nil deadPeer does nothing.
func (d *deadPeer) sending() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arm()
}

func (d *deadPeer) arm() {
	switch {
	case d.armed || d.ended:
		return
	case d.timer == nil:
		d.timer = time.AfterFunc(deadAfter, d.check)
	default:
		d.timer.Reset(deadAfter)
	}
	d.armed = true
}

// check looks whether the peer has acknowledged anything since the timer was set.
func (d *deadPeer) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.armed = false
	switch silent, waiting := d.look(d.nc); {
	case waiting && silent >= deadAfter:
		d.ended = true
		d.found()
	case waiting:
		d.arm()
	}
}

// stop ends it; afterwards found is not called any more.
func (d *deadPeer) stop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.timer != nil {
		d.timer.Stop()
	}
}
