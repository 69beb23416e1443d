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

// deadPeerWatch notices that a TCP peer is gone while something is on its way to
// it: keep-alive looks after idle connections only, and the system goes on
// trying for a quarter of an hour. (Linux could be told how long to try,
// TCP_USER_TIMEOUT, but would then also give up a peer that is alive and busy.)
type deadPeerWatch struct {
	nc           net.Conn
	onDead       func()                                              // called once at most
	readAckState func(net.Conn) (silent time.Duration, waiting bool) // awaitingAck, but in tests
	timer        lazytimer.Timer                                     // is set while something is on its way; calls checkAck
	dead         atomic.Bool                                         // onDead was called
}

// watchPeer returns a deadPeerWatch that calls onDead in a goroutine of its own; nil: the
// connection is not one of TCP.
func watchPeer(nc net.Conn, onDead func()) *deadPeerWatch {
	if _, ok := nc.(*net.TCPConn); !ok {
		return nil
	}
	return newDeadPeerWatch(nc, onDead, awaitingAck)
}

func newDeadPeerWatch(nc net.Conn, onDead func(), readAckState func(net.Conn) (time.Duration, bool)) *deadPeerWatch {
	d := &deadPeerWatch{nc: nc, onDead: onDead, readAckState: readAckState}
	d.timer.Do = d.checkAck
	return d
}

// noteSending says that something is about to be sent. A nil deadPeerWatch does nothing.
func (d *deadPeerWatch) noteSending() {
	if d != nil {
		d.timer.SetAtLatest(time.Now().Add(deadAfter))
	}
}

// checkAck looks whether the peer has acknowledged anything since the timer was set.
func (d *deadPeerWatch) checkAck() {
	switch silent, waiting := d.readAckState(d.nc); {
	case waiting && silent >= deadAfter:
		if d.dead.CompareAndSwap(false, true) {
			d.onDead()
		}
	case waiting:
		d.timer.SetAfter(deadAfter)
	}
}

// stop ends the watch; afterwards onDead is not called any more. A nil deadPeerWatch does nothing.
func (d *deadPeerWatch) stop() {
	if d != nil {
		d.timer.Stop()
	}
}
