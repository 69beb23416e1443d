package listen

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds, for all connections of a listening socket, how long
// a peer may leave unacknowledged what it was sent. The system itself goes on
// trying for a quarter of an hour.
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter/time.Millisecond))
	})
	if control != nil {
		return control
	}
	return err
}
