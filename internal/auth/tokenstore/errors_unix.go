//go:build unix

package tokenstore

import (
	"errors"
	"syscall"
)

// isFull reports whether err says that the disk, or the user's share of it, is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// isReadOnly reports whether err says that the disk may not be written.
func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// isSymbolicLink reports whether err is that of opening a symbolic link with O_NOFOLLOW (EMLINK on FreeBSD).
func isSymbolicLink(err error) bool {
	return errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK)
}

// isLockingUnsupported reports whether err says that the file system has no locks. The store does not work there (ErrNoLocks).
func isLockingUnsupported(err error) bool {
	return errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EOPNOTSUPP) ||
		errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL)
}

// isInterrupted reports whether err says that a signal has interrupted the call.
func isInterrupted(err error) bool { return errors.Is(err, syscall.EINTR) }

// isHeldOpen returns false: only Windows refuses to replace a file that somebody has open.
func isHeldOpen(error) bool { return false }
