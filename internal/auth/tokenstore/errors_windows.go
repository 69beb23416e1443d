package tokenstore

import (
	"errors"
	"syscall"
)

// The numbers of Windows errors; package syscall names but a few.
const (
	errWriteProtect     = syscall.Errno(19)
	errSharingViolation = syscall.Errno(32)
	errLockViolation    = syscall.Errno(33)
	errHandleDiskFull   = syscall.Errno(39)
	errNotSupported     = syscall.Errno(50)
	errDiskFull         = syscall.Errno(112)
	errQuotaExceeded    = syscall.Errno(1295)
)

func isFull(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, errHandleDiskFull) || errors.Is(err, errQuotaExceeded)
}

func isReadOnly(err error) bool { return errors.Is(err, errWriteProtect) }

func isSymbolicLink(error) bool { return false }

func isLockingUnsupported(err error) bool {
	return errors.Is(err, errNotSupported) || errors.Is(err, syscall.Errno(1)) // ERROR_INVALID_FUNCTION
}

func isInterrupted(error) bool { return false }

// isHeldOpen: somebody, perhaps a virus scanner, has the file open in a way
// that excludes us. It passes. ERROR_ACCESS_DENIED is what a rename over an
// open file ends with.
func isHeldOpen(err error) bool {
	return errors.Is(err, errSharingViolation) || errors.Is(err, errLockViolation) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
}
