package listen

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long data on a connection may stay unacknowledged. It holds for
// all connections of a listening socket. Without it Linux retries for a quarter of an
// hour.
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
