package nonblock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// QueuedBytes asks a descriptor how much of what was written its peer has not read or acknowledged (request is unix.SIOCOUTQ), or how much there is to be read (unix.TIOCINQ).
func QueuedBytes(fd uintptr, request uint) (n int, errno syscall.Errno) {
	var count int32
	_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, uintptr(request), uintptr(unsafe.Pointer(&count)))
	return int(count), errno
}

// Poll returns which of events, such as unix.POLLOUT, have happened to a descriptor, besides unix.POLLERR, unix.POLLHUP and unix.POLLNVAL, which it always
// tells (poll(2)). It does not wait.
func Poll(fd uintptr, events int16) (happened int16, errno syscall.Errno) {
	fds := unix.PollFd{Fd: int32(fd), Events: events}
	var noWait unix.Timespec
	_, _, errno = syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&noWait)), 0, 0, 0)
	return fds.Revents, errno
}
