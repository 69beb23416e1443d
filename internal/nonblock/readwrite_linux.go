//go:build !race

package nonblock

import (
	"syscall"
	"unsafe"
)

// readFD reads from a non-blocking socket. n is 0 at the end and with an error, which is EAGAIN if there is nothing to be read yet.
func readFD(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// WriteFD writes to a non-blocking socket, and does not wait. It may write a part of p. n is 0 with an error, which is EAGAIN if nothing
// can be taken yet. p has at most 64 KiB, see the package.
func WriteFD(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
