package nonblock

import (
	"syscall"
	"unsafe"
)

// UnsentBytes returns how many bytes were written to a socket and its peer has not taken yet (tcp(7), unix(7): SIOCOUTQ).
func UnsentBytes(fd uintptr) (n int, errno syscall.Errno) {
	var count int32
	_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&count))) // SIOCOUTQ, by its other name
	return int(count), errno
}

// Poll returns which of events, such as unix.POLLRDHUP, have happened to a socket; it always tells of unix.POLLERR, unix.POLLHUP and
// unix.POLLNVAL, too (poll(2)). It does not wait.
func Poll(fd uintptr, events int16) (happened int16, errno syscall.Errno) {
	fds := struct { // struct pollfd
		fd               int32
		events, happened int16
	}{int32(fd), events, 0}
	var noWait syscall.Timespec
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&noWait)), 0, 0, 0)
	return fds.happened, errno
}
