package tokenstore

import (
	"errors"
	"syscall"
)

// The numbers of Windows errors; package syscall names but a few.
const (
	errWriteProtect     = syscall.Errno(19)   // ERROR_WRITE_PROTECT: the disk may not be written
	errSharingViolation = syscall.Errno(32)   // ERROR_SHARING_VIOLATION: somebody has the file open
	errLockViolation    = syscall.Errno(33)   // ERROR_LOCK_VIOLATION: somebody has locked a part of the file
	errHandleDiskFull   = syscall.Errno(39)   // ERROR_HANDLE_DISK_FULL
	errNotSupported     = syscall.Errno(50)   // ERROR_NOT_SUPPORTED
	errDiskFull         = syscall.Errno(112)  // ERROR_DISK_FULL
	errQuotaExceeded    = syscall.Errno(1295) // ERROR_DISK_QUOTA_EXCEEDED
)

// isFull reports whether err says that the disk, or the user's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, errHandleDiskFull) || errors.Is(err, errQuotaExceeded)
}

// isReadOnly reports whether err says that the disk may not be written.
func isReadOnly(err error) bool { return errors.Is(err, errWriteProtect) }

// isSymbolicLink returns false: opening a symbolic link is no error on Windows.
func isSymbolicLink(error) bool { return false }

// isLockingUnsupported reports whether err says that the file system has no locks. The store does not work there (ErrNoLocks).
func isLockingUnsupported(err error) bool {
	return errors.Is(err, errNotSupported) || errors.Is(err, syscall.Errno(1)) // ERROR_INVALID_FUNCTION
}

// isInterrupted returns false: Windows has no such error.
func isInterrupted(error) bool { return false }

// isHeldOpen reports whether err says that somebody, perhaps a virus scanner, has the file open in a way that
// excludes us. That passes. ERROR_ACCESS_DENIED is the error of a rename over an open file.
func isHeldOpen(err error) bool {
	return errors.Is(err, errSharingViolation) || errors.Is(err, errLockViolation) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
}
