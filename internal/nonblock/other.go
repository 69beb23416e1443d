//go:build !linux

package nonblock

import (
	"io"
	"net"
	"os"
)

// Listener returns l. On Linux, it makes what Accept returns read and write as the package says.
func Listener(l net.Listener) net.Listener { return l }

// Conn returns c. On Linux, it makes c read and write as the package says.
func Conn(c net.Conn) net.Conn { return c }

// FileReader returns f. On Linux, it makes what reads f as the package says.
func FileReader(f *os.File) io.Reader { return f }
