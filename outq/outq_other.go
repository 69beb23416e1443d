//go:build !linux

package outq

import "syscall"

// of returns nil: here it cannot be told.
func of(syscall.RawConn) func() bool { return nil }
