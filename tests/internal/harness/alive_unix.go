//go:build unix

package harness

import (
	"errors"
	"syscall"
)

// Alive reports whether a process exists; a zombie does.
func Alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
