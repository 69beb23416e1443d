package stdio

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// awaitingAck returns whether anything that was sent is not acknowledged yet, or waits to
// go out (waiting), and how long ago the peer has acknowledged anything (silent). A peer that
// is alive and takes nothing for the time being has a silent of 0: the system probes it,
// ever more seldom, so that the time since its last sign says nothing.
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
