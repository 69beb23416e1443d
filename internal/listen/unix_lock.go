//go:build unix

package listen

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
)

// lockTimeout is longer than another bridge needs to look at a socket that is
// in its way.
const lockTimeout = 2 * probeTimeout

// lockDir keeps two bridges that start at the same time from removing each
// other's socket: between bind and listen a socket looks like one that was
// left behind. Nothing remains of the lock.
//
// Whoever may read a directory may lock it, for ever. So the lock is waited for no longer than
// another bridge may need it; without it only that race is not prevented, and a warning says so.
func lockDir(dir string, log hclog.Logger) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) { // a directory may be there to be searched and not read
			return func() {}, nil
		}
		return nil, adviseUnix(err)
	}
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(5 * time.Millisecond) {
		switch err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { _ = d.Close() }, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR): // not every file system can
			_ = d.Close()
			return func() {}, nil
		case time.Now().After(deadline):
			_ = d.Close()
			log.Warn("another program keeps the directory of the socket locked: going on without the lock, which only matters if another bridge is given the same socket at this moment", "directory", dir)
			return func() {}, nil
		}
	}
}
