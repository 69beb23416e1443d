//go:build unix && !linux

package supervisor

import "golang.org/x/sys/unix"

const (
	// getTermios is the ioctl that reads a terminal's settings.
	getTermios = unix.TIOCGETA
	// setTermios is the ioctl that changes a terminal's settings at once.
	setTermios = unix.TIOCSETA
)
