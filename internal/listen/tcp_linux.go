package listen

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setSocketOptions sets what holds for all connections of a listening socket.
//
// TCP_USER_TIMEOUT bounds how long data may stay unacknowledged. Without it Linux retries for a quarter of an hour.
//
// TCP_NOTSENT_LOWAT bounds what the kernel takes beyond what the peer has room for. Without it a write that has to wait goes on
// only when the peer has taken half of all that the kernel keeps, which may be 2 MiB: a peer that reads slowly could not be told
// from one that does not read (LI32, SS5).
func setSocketOptions(_, _ string, c syscall.RawConn) error {
	var err error
	control := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(keepaliveTimeout/time.Millisecond))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsentBytes) // not every sandbox knows it
	})
	return errors.Join(control, err)
}

// maxUnsentBytes is how many bytes the kernel keeps of what a TCP peer has no room for yet, before a write to it waits.
const maxUnsentBytes = 128 << 10
