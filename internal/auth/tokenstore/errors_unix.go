//go:build unix

package tokenstore

import (
	"errors"
	"syscall"
)

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// isSymbolicLink: what opening a symbolic link with O_NOFOLLOW ends with; EMLINK on FreeBSD.
func isSymbolicLink(err error) bool {
	return errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK)
}

func isLockingUnsupported(err error) bool {
	return errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EOPNOTSUPP) ||
		errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL)
}

func isInterrupted(err error) bool { return errors.Is(err, syscall.EINTR) }

// isHeldOpen: only Windows refuses to replace a file that somebody has open.
func isHeldOpen(error) bool { return false }
