package listen

import (
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// peerUser returns the user at the other end of a Unix socket, as "user " and the number of the user, from the kernel (unix(7): SO_PEERCRED).
// "": the kernel does not tell.
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
