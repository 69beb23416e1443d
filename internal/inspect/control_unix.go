//go:build unix

package inspect

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
)

// userID returns the id of this user, for the name of the folder of control sockets where it lies in a folder of all users.
func userID() string { return strconv.Itoa(os.Getuid()) }

// connRefused is the error of a socket on which nobody listens.
const connRefused = syscall.ECONNREFUSED

// isPrivate reports whether a folder belongs to this user and its mode lets nobody else in.
func isPrivate(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}

// lock locks a folder against others who call lock, in whatever process, until unlock is called. It waits for timeout at most. false:
// somebody else has had the lock for all that time, or the folder cannot be locked.
func lock(dir string, timeout time.Duration) (unlock func(), ok bool) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, false
	}
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return func() { _ = f.Close() }, true // which unlocks it
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR, time.Now().After(end):
			_ = f.Close()
			return nil, false
		}
	}
}
