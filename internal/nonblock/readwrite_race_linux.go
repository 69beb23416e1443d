//go:build race

package nonblock

import "syscall"

// The race detector learns from package syscall that what was written before a write happened before the read of it. So with the race
// detector on, the calls are those of package syscall.

// readFD reads from a non-blocking socket. n is 0 at the end and with an error, which is EAGAIN if there is nothing to be read yet.
func readFD(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	return count(func() (int, error) { return syscall.Read(int(fd), p) })
}

// WriteFD writes to a non-blocking socket, and does not wait. It may write a part of p. n is 0 with an error, which is EAGAIN if nothing
// can be taken yet.
func WriteFD(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	return count(func() (int, error) { return syscall.Write(int(fd), p) })
}

// count makes a call, again while a signal interrupts it, and returns its result; 0 with an error.
func count(call func() (int, error)) (n int, errno syscall.Errno) {
	for {
		n, err := call()
		errno, _ := err.(syscall.Errno)
		switch errno {
		case 0:
			return n, 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
