//go:build unix

package tokenstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// noFollow is added to what files are opened with: a symbolic link is refused.
const noFollow = syscall.O_NOFOLLOW

// checkOnlyOursAccess returns an error if others than this user have a right to it.
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

// openForReading opens a file that is there to be read. It does not wait for the
// writer of a pipe.
func openForReading(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|noFollow|syscall.O_NONBLOCK, 0)
}

// syncFolder brings the names in a folder to the disk, where that can be done.
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
