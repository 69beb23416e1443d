package stdio

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// awaitingAck returns whether something is on its way to the peer or waits
// to be, and how long ago the peer has acknowledged anything. A peer that is
// alive and takes nothing for the time being is not silent: it is asked
// whether it does more and more seldom.
func awaitingAck(nc net.Conn) (silent time.Duration, waiting bool) {
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) { // closed: nothing waits
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		waiting = info.Unacked > 0 || info.Notsent_bytes > 0
		if info.Unacked > 0 {
			silent = time.Duration(info.Last_ack_recv) * time.Millisecond
		}
	})
	return silent, waiting
}
