package tokenstore

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// An ErrorKind says what went wrong: errors.Is finds it in an Error. Kinds are constants and may be used by
// any goroutine.
type ErrorKind string

// Error returns the words of the kind.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of error.
const (
	// ErrInput: the caller gave something that cannot be used.
	ErrInput ErrorKind = "not usable"
	// ErrUnsafe: others may read or write what is stored, or a file is a symbolic link. Nothing was read.
	ErrUnsafe ErrorKind = "not safe for secrets"
	// ErrBroken: a file could not be understood. It was renamed (Error.MovedTo), unless that is "".
	ErrBroken ErrorKind = "broken file"
	// ErrNewer: a file is of a later format. It is left alone.
	ErrNewer ErrorKind = "written by a later version of this program"
	// ErrStale: the generation that was to be replaced is not the stored one any more. Nothing was written: load
	// again.
	ErrStale ErrorKind = "changed by somebody else meanwhile"
	// ErrBusy: somebody else still had the lock when the ctx was done.
	ErrBusy ErrorKind = "locked by another process"
	// ErrNoLocks: files in the folder of the store cannot be locked.
	ErrNoLocks ErrorKind = "files cannot be locked here"
	// ErrFull: the disk, or the user's share of it, is full. What was stored before is still there.
	ErrFull ErrorKind = "no room on the disk"
	// ErrReadOnly: the store may not be written. What was stored before is still there.
	ErrReadOnly ErrorKind = "may not be written"
	// ErrIO: the system reported another error, or does not allow reading.
	ErrIO ErrorKind = "input or output error"
	// ErrRateLimit: there were too many token requests within a minute. It stays so until
	// [LockedCredential.ForgetTokenRequests].
	ErrRateLimit ErrorKind = "too many token requests in a minute; none is sent until the next sign-in"
	// ErrNoKeyring: the system's keyring is needed and cannot be used.
	ErrNoKeyring ErrorKind = "the system's keyring cannot be used"
	// ErrSealed: the file is encrypted, and the store was opened without the keyring.
	ErrSealed ErrorKind = "encrypted with a key in the system's keyring, which is not in use"
	// ErrPlain: the file is not encrypted, and the store was opened with the keyring.
	ErrPlain ErrorKind = "not encrypted, though the system's keyring is in use"
	// ErrOtherKey: the file is encrypted with another key than the keyring has.
	ErrOtherKey ErrorKind = "encrypted with another key than the system's keyring has"
	// ErrReleased: the lock that a call needs has been released already.
	ErrReleased ErrorKind = "the lock has been released"
)

// An Error is what every function of this package returns that fails. Its text
// has paths, never a secret. It may be used by any goroutine.
type Error struct {
	Kind ErrorKind // what went wrong, for errors.Is
	Path string    // the file or folder that it is about; "": none
	// MovedTo is the path to which a broken file was renamed; "": it was not.
	MovedTo string
	Detail  string // what exactly is wrong, for people; "": nothing to add
	Err     error  // what the system said; nil: nothing
}

// Error returns path, kind, detail and what the system said in one line.
func (e *Error) Error() string {
	parts := make([]string, 0, 5)
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	parts = append(parts, string(e.Kind))
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if e.Err != nil {
		parts = append(parts, withoutPathError(e.Err).Error())
	}
	if e.MovedTo != "" {
		parts = append(parts, "it was moved to "+e.MovedTo)
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns Kind, and Err if there is one.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// withoutPathError returns the error inside an error of package os that names a path or a call; any other
// error as it is.
func withoutPathError(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	case errors.As(err, &call):
		return call.Err
	}
	return err
}

// newSystemError returns an Error for an error of the system about path, with the Kind that fits: ErrFull,
// ErrReadOnly, ErrUnsafe (a symbolic link) or ErrIO.
func newSystemError(path string, err error) *Error {
	kind := ErrIO
	switch {
	case isFull(err):
		kind = ErrFull
	case isReadOnly(err), errors.Is(err, fs.ErrPermission):
		kind = ErrReadOnly
	case isSymbolicLink(err):
		return &Error{Kind: ErrUnsafe, Path: path, Detail: "it is a symbolic link"}
	}
	return &Error{Kind: kind, Path: path, Err: err}
}

// newReadError returns an Error for an error of the system in reading path, with the Kind that fits: that of
// newSystemError, but ErrIO where reading is not allowed, since ErrReadOnly is about writing.
func newReadError(path string, err error) *Error {
	e := newSystemError(path, err)
	if e.Kind == ErrReadOnly {
		e.Kind = ErrIO
	}
	return e
}
