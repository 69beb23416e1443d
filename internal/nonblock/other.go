//go:build !linux

package nonblock

import "net"

// Listener returns l. On Linux, it makes what Accept returns read and write as the package says.
func Listener(l net.Listener) net.Listener { return l }

// Conn returns c. On Linux, it makes c read and write as the package says.
func Conn(c net.Conn) net.Conn { return c }
