package listen

import (
	"io/fs"
	"net"

	"github.com/hashicorp/go-hclog"
)

// listenWithMode makes a socket. There are no modes.
func listenWithMode(path string, _ fs.FileMode) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}

func lockDir(string, hclog.Logger) (unlock func(), err error) { return func() {}, nil }
