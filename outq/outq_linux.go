package outq

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// of asks the kernel (tcp(7), unix(7): SIOCOUTQ).
func of(raw syscall.RawConn) func() bool {
	return func() bool {
		taken := false
		err := raw.Control(func(fd uintptr) {
			n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			taken = err == nil && n == 0
		})
		return err == nil && taken
	}
}
