//go:build unix

package wrap

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// chownLike gives a new file to the owner and group that like has. It is an error if this user may not do that.
func chownLike(f *os.File, like fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, ok1 := info.Sys().(*syscall.Stat_t)
	want, ok2 := like.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
		return fmt.Errorf("%s belongs to another user or group, who could not be kept: %w", like.Name(), err)
	}
	return nil
}
