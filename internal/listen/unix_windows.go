package listen

import (
	"io/fs"
	"net"

	"github.com/hashicorp/go-hclog"
)

// listenWithMode makes a Unix socket at path. The mode is ignored, as Windows has none.
func listenWithMode(path string, _ fs.FileMode) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

// lockDir does nothing: on Windows directories cannot be locked. Elsewhere the lock keeps two bridges that start at the
// same time from removing each other's socket.
func lockDir(string, hclog.Logger) (unlock func(), err error) { return func() {}, nil }
