//go:build !linux

package sockstate

import "syscall"

// of returns nil: here it cannot be told.
func of(syscall.RawConn) func() bool { return nil }

// hungUp returns nil: here it cannot be told.
func hungUp(syscall.RawConn) func() error { return nil }
