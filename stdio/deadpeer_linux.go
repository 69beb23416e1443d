package stdio

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// awaitingAck asks the system about what was sent over a TCP connection. waiting: some
// of it is not acknowledged yet, or has not gone out. silent is how long ago the last
// acknowledgement came. It is 0 for a peer that is alive and takes nothing for the
// time being: the system probes that ever more seldom, so that the time since its last
// sign says nothing.
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
