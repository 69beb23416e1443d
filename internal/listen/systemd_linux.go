package listen

import (
	"net"
	"syscall"
)

// isListening reports whether the socket listens, and is not a connection. It is true if that cannot be told.
func isListening(l net.Listener) bool {
	s, ok := l.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	value := 1
	_ = raw.Control(func(fd uintptr) {
		if v, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err == nil {
			value = v
		}
	})
	return value != 0
}
