package supervisor

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TCGETS // getTermios is the ioctl that reads a terminal's settings.
	setTermios = unix.TCSETS // setTermios is the ioctl that changes a terminal's settings at once.
)
