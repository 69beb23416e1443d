package stdio

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// reopen opens a pipe or a terminal a second time, which makes it non-blocking
// for us alone. It returns nil where that is not possible: for sockets, without
// /proc, or if the file belongs to another user.
func reopen(f *os.File, mode int) *os.File {
	fd, err := withDescriptor(f, func(fd int) (int, error) { return fd, nil })
	if err != nil {
		return nil
	}
	g, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), mode|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	if g.SetDeadline(time.Time{}) != nil { // cannot be polled
		g.Close()
		return nil
	}
	return g
}
