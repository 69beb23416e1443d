package sockstate

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// outputDrainedFunc returns the function of OutputDrainedFunc: it asks the kernel how much of what was
// written to raw the peer has not taken (tcp(7), unix(7): SIOCOUTQ).
func outputDrainedFunc(raw syscall.RawConn) func() bool {
	return func() bool {
		taken := false
		err := raw.Control(func(fd uintptr) {
			n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			taken = err == nil && n == 0
		})
		return err == nil && taken
	}
}

// peerClosedFunc returns the function of PeerClosedFunc: it asks the kernel whether the peer of raw has
// closed the connection or its direction of it (poll(2): POLLRDHUP, POLLHUP).
func peerClosedFunc(raw syscall.RawConn) func() error {
	return func() error {
		known := net.ErrClosed
		_ = raw.Control(func(fd uintptr) { // not called once the connection is closed
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			_, err := unix.Poll(fds, 0)
			switch {
			case err != nil:
				known = nil
			case fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0:
			case fds[0].Revents&unix.POLLRDHUP != 0:
				known = io.EOF
			default:
				known = nil
			}
		})
		return known
	}
}
