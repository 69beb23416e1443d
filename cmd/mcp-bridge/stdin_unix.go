//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stopWhenClosed calls stop when stdin, being a pipe or a socket, is closed by
// whoever holds the other end: supervisors stop a server so. A stdin that is
// anything else, or was closed from the beginning, says nothing.
func stopWhenClosed(stdin *os.File, stop func()) {
	info, err := stdin.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return
	}
	now := []unix.PollFd{{Fd: int32(stdin.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(now, 0); err != nil || n > 0 && now[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
		return
	}
	// Ends with the process at the latest: a read of stdin cannot be taken back.
	go func() {
		if _, err := io.Copy(io.Discard, stdin); err == nil {
			stop()
		}
	}()
}
