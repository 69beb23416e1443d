//go:build !linux

package sockstate

import "syscall"

// outputDrainedFunc returns nil: this system cannot tell what the peer has taken.
func outputDrainedFunc(syscall.RawConn) func() bool { return nil }

// peerClosedFunc returns nil: this system cannot tell, without reading, that the peer has closed.
func peerClosedFunc(syscall.RawConn) func() error { return nil }
