//go:build unix && !linux

package listen

import (
	"io/fs"
	"net"
	"syscall"
)

// listenMode makes a socket that nobody can connect to who should not, from
// the moment that its name exists. The umask is the whole process's: what
// another goroutine makes at this moment gets fewer permissions, never more.
func listenMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	old := syscall.Umask(0o777 &^ int(mode))
	defer syscall.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
