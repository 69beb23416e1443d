//go:build unix && !linux

package supervisor

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA // getTermios is the ioctl that reads a terminal's settings.
	setTermios = unix.TIOCSETA // setTermios is the ioctl that changes a terminal's settings at once.
)
