package listen

import (
	"context"
	"io/fs"
	"net"
	"syscall"
)

// listenWithMode makes a Unix socket at path that has this mode, without the bits of the umask, from the moment that its
// name exists: on Linux, bind gives the file the mode of the socket.
func listenWithMode(path string, mode fs.FileMode) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		err := c.Control(func(fd uintptr) { chmod = syscall.Fchmod(int(fd), uint32(mode)) })
		if err != nil {
			return err
		}
		return chmod
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}
