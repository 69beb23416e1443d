//go:build unix

package tokenstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// noFollow is the flag with which opening a symbolic link fails; 0 on Windows, which has no such flag.
const noFollow = syscall.O_NOFOLLOW

// checkOnlyOursAccess returns an error (ErrUnsafe) if the file or folder belongs to another user, or others
// have any right to it.
func checkOnlyOursAccess(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &Error{Kind: ErrUnsafe, Path: path, Detail: "the system does not tell whose it is"}
	}
	if int(stat.Uid) != os.Geteuid() {
		return &Error{Kind: ErrUnsafe, Path: path, Detail: fmt.Sprintf("it belongs to user %d, and this is user %d", stat.Uid, os.Geteuid())}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		want := "600"
		if info.IsDir() {
			want = "700"
		}
		return &Error{Kind: ErrUnsafe, Path: path, Detail: fmt.Sprintf("others have rights to it (mode %04o); chmod %s takes them away", mode, want)}
	}
	return nil
}

// openForReading opens a file to read it. A symbolic link is an error. It does not wait for the writer of a
// pipe.
func openForReading(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|noFollow|syscall.O_NONBLOCK, 0)
}

// syncFolder brings the names in a folder to the disk (fsync). That the file system cannot do it is no error.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
