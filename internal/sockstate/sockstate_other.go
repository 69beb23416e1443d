//go:build !linux

package sockstate

import "syscall"

// drained returns nil: here it cannot be told.
func drained(syscall.RawConn) func() bool { return nil }

// peerClosed returns nil: here it cannot be told.
func peerClosed(syscall.RawConn) func() error { return nil }
