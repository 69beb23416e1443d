//go:build !linux

package listen

import "syscall"

// setSocketOptions is nil where only the system's own patience counts for a peer
// that has died with something on its way to it.
var setSocketOptions func(network, address string, c syscall.RawConn) error
