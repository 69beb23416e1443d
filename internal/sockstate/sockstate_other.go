//go:build !linux

package sockstate

import "syscall"

// outputDrainedFunc returns nil: here it cannot be told.
func outputDrainedFunc(syscall.RawConn) func() bool { return nil }

// peerClosedFunc returns nil: here it cannot be told.
func peerClosedFunc(syscall.RawConn) func() error { return nil }
