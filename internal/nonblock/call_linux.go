package nonblock

import (
	"syscall"
	"unsafe"
)

// QueuedBytes returns how many bytes are in a queue of a socket or pipe: those that were written and its peer has not taken (request is
// unix.SIOCOUTQ), or those that there are to be read (unix.TIOCINQ). It does not wait.
func QueuedBytes(fd uintptr, request uint) (n int, errno syscall.Errno) {
	var count int32
	_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(&count)))
	return int(count), errno
}

// Poll returns which of events, such as unix.POLLOUT, have happened to a descriptor; it always tells of unix.POLLERR, unix.POLLHUP and
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
