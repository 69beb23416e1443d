package tokenstore

import (
	"io/fs"
	"os"
)

// noFollow is the flag with which opening a symbolic link fails; 0 on Windows, which has no such flag.
const noFollow = 0

// checkOnlyOursAccess returns nil and checks nothing on Windows: the doc comment of the package says why.
func checkOnlyOursAccess(string, fs.FileInfo) error { return nil }

// openForReading opens a file to read it. ErrUnsafe: it is no regular file.
func openForReading(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &Error{Kind: ErrUnsafe, Path: path, Detail: "it is no regular file"}
	}
	return os.Open(path)
}

// syncFolder does nothing. Elsewhere it brings the names in a folder to the disk; Windows cannot do that.
func syncFolder(string) error { return nil }
