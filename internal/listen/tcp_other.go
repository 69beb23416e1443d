//go:build !linux

package listen

import "syscall"

// setSocketOptions is nil on all systems but Linux: no options are set on listening sockets. How long a dead peer may leave data
// unacknowledged is what the system says.
var setSocketOptions func(network, address string, c syscall.RawConn) error
