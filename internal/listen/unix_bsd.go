//go:build unix && !linux

package listen

import (
	"io/fs"
	"net"
	"syscall"
)

// listenWithMode makes a Unix socket at path with this mode, or with fewer bits, from the moment that its name exists. It
// sets the umask of the whole process for a moment: a file that another goroutine makes at
// that moment may get fewer permissions, but never more.
func listenWithMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	old := syscall.Umask(0o777 &^ int(mode))
	defer syscall.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
