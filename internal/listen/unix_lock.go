//go:build unix

package listen

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// lockTimeout is how long lockDir waits for the lock: longer than another bridge needs for removeStaleSocket.
const lockTimeout = 2 * probeTimeout

// lockDir locks a directory until unlock is called, so that two bridges that start at the same time do not remove each other's
// socket: between bind and listen a socket looks as if nobody listened on it. The lock
// leaves no file behind.
//
// Any user who may read a directory can lock it, for as long as they like. So lockDir waits
// no longer than another bridge may need the lock. Without the lock everything works but
// the protection against that race; a warning says so.
func lockDir(dir string, log hclog.Logger) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) { // we may be allowed to use a directory, but not to read it
			return func() {}, nil
		}
		return nil, explainUnixErr(err)
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(5 * time.Millisecond) {
		switch err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { _ = d.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR): // not every file system has locks
			_ = d.Close()
			return func() {}, nil
		case time.Now().After(deadline):
			_ = d.Close()
			log.Warn("another program keeps the directory of the socket locked: going on without the lock, which only matters if another bridge is given the same socket at this moment", "directory", dir)
			return func() {}, nil
		}
	}
}
