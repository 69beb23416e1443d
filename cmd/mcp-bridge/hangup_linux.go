package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// watchClientGone returns a channel that is closed when whoever writes to stdin has
// gone, even while there is still input to read. The goroutine behind it ends
// with the process: nothing else ends its wait.
func watchClientGone(stdin *os.File) <-chan struct{} {
	gone := make(chan struct{})
	raw, err := stdin.SyscallConn()
	if err != nil {
		return gone
	}
	// The descriptor's number without Fd, which would make reads block.
	fd := -1
	if raw.Control(func(n uintptr) { fd = int(n) }) != nil {
		return gone
	}
	go func() {
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			_, err := unix.Poll(poll, -1)
			if err == unix.EINTR {
				continue
			}
			if err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0 {
				close(gone)
			}
			return
		}
	}()
	return gone
}
