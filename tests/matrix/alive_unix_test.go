//go:build unix

package matrix

import "syscall"

// alive reports whether a process exists; a zombie does.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
