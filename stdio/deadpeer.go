package stdio

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
)

// deadAfter is for how long a TCP peer may acknowledge nothing of what it was sent
// before it counts as gone. It is looked at as often, while something is on its way.
const deadAfter = 50 * time.Second

// errDeadPeer ends a Conn over TCP whose peer has acknowledged nothing for deadAfter.
var errDeadPeer = errors.New("the connection was lost: the peer does not answer any more")

// deadPeerWatch notices that a TCP peer is gone while something is on its way to
// it: keep-alive looks after idle connections only, and the system goes on
// trying for a quarter of an hour. (Linux could be told how long to try,
// TCP_USER_TIMEOUT, but would then also give up a peer that is alive and busy.)
type deadPeerWatch struct {
	nc           net.Conn                                            // the TCP connection
	onDead       func()                                              // called when the peer is found to be gone, once at most
	readAckState func(net.Conn) (silent time.Duration, waiting bool) // says how long the peer has acknowledged nothing, and whether something waits for that: awaitingAck; tests have another one
	timer        lazytimer.Timer                                     // is set while something may be on its way to the peer; calls checkAck
	dead         atomic.Bool                                         // the peer was found to be gone, and onDead called
}

// watchPeer returns a deadPeerWatch of nc, which calls onDead, in a goroutine of its
// own, when the peer is gone; nil if nc is no TCP connection.
func watchPeer(nc net.Conn, onDead func()) *deadPeerWatch {
	if _, ok := nc.(*net.TCPConn); !ok {
		return nil
	}
	return newDeadPeerWatch(nc, onDead, awaitingAck)
}

// newDeadPeerWatch returns a deadPeerWatch of nc that calls onDead once, when the peer
// is gone. readAckState is awaitingAck, except in tests.
func newDeadPeerWatch(nc net.Conn, onDead func(), readAckState func(net.Conn) (time.Duration, bool)) *deadPeerWatch {
	d := &deadPeerWatch{nc: nc, onDead: onDead, readAckState: readAckState}
	d.timer.Do = d.checkAck
	return d
}

// noteSending is called before something is sent: within deadAfter checkAck looks
// whether the peer has acknowledged it. A nil deadPeerWatch does nothing.
func (d *deadPeerWatch) noteSending() {
	if d != nil {
		d.timer.SetAtLatest(time.Now().Add(deadAfter))
	}
}

// checkAck calls onDead if the peer has acknowledged nothing for deadAfter although
// something is on its way to it. While something is, it looks again after deadAfter.
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
