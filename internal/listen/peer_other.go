//go:build !linux

package listen

import "net"

// peerUser returns "": this system does not tell the user.
func peerUser(*net.UnixConn) string { return "" }
