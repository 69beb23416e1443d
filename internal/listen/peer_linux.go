package listen

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerUser asks the kernel for the user (unix(7): SO_PEERCRED).
func peerUser(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	user := ""
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			user = "user " + strconv.FormatUint(uint64(cred.Uid), 10)
		}
	})
	return user
}
