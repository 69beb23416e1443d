//go:build unix

package inspect

import (
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

func userID() string { return strconv.Itoa(os.Getuid()) }

// isPrivate reports whether a folder is this user's, and nobody else may do anything in it.
func isPrivate(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
