package watch

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds what is read of a file: more is no configuration.
const maxFileBytes = 16 << 20

// A content is what was found behind a file's name: a hash of what the file contains, or why it
// could not be read.
type content struct {
	sum         [sha256.Size]byte // the SHA-256 sum of the file's first 16 MiB
	readFailure string            // "missing", "unreadable" or "no regular file"; "": it was read, and sum counts
}

// readContent returns what is behind a name now. Only a regular file is opened: a
// pipe could block.
func readContent(name string) content {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return content{readFailure: "missing"}
	case err != nil:
		return content{readFailure: "unreadable"}
	case !info.Mode().IsRegular():
		return content{readFailure: "no regular file"}
	}
	f, err := os.Open(name)
	if err != nil {
		return content{readFailure: "unreadable"}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxFileBytes)); err != nil {
		return content{readFailure: "unreadable"}
	}
	return content{sum: [sha256.Size]byte(h.Sum(nil))}
}

// directoriesOf returns the directories in which something happens when a name comes
// to mean another file: where the file is, and where each symbolic link on the
// way is; as far as the path exists. None of them has a link in its own path.
func directoriesOf(file string) (dirs []string) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	dir, elements := splitRoot(file)
	for links := 0; len(elements) > 0; {
		name := elements[0]
		elements = elements[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil {
			return append(dirs, dir)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if len(elements) == 0 {
				dirs = append(dirs, dir)
			}
			dir = path
			continue
		}
		dirs = append(dirs, dir)
		target, err := os.Readlink(path)
		if links++; err != nil || links > 40 { // more is a circle
			return dirs
		}
		if filepath.IsAbs(target) {
			var steps []string
			dir, steps = splitRoot(target)
			elements = append(steps, elements...)
		} else {
			elements = append(pathElements(target), elements...)
		}
	}
	return dirs
}

// splitRoot splits an absolute path into its root ("/", "C:\") and the names below it.
func splitRoot(path string) (dir string, elements []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), pathElements(path[len(volume):])
}

// pathElements returns the names in a path, from left to right, without ".".
func pathElements(path string) []string {
	all := strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
	kept := all[:0]
	for _, s := range all {
		if s != "." {
			kept = append(kept, s)
		}
	}
	return kept
}
