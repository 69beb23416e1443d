package tokenstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// Waits between two tries for a lock, on average: each is drawn from half to one and a half of it.
const (
	minLockPoll = time.Millisecond      // the wait after the first try for a lock; the wait after each further try is twice as long
	maxLockPoll = 50 * time.Millisecond // at which the wait between two tries for a lock stops growing
)

// lock takes the kernel lock of the file with this name in the subfolder kind, and waits for it as long as
// ctx; [ErrBusy]: ctx was done first. The lock ends with unlock, or with the process.
func (s *Store) lock(ctx context.Context, kind, name string) (unlock func(), err error) {
	for wait := minLockPoll; ; wait = min(2*wait, maxLockPoll) {
		unlock, ok, err := s.tryLock(kind, name)
		if ok || err != nil {
			return unlock, err
		}
		// Not all who wait shall try at the same moment.
		timer := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, &Error{Kind: ErrBusy, Path: s.filePath(kind, name), Err: ctx.Err()}
		case <-timer.C:
		}
	}
}

// tryLock takes the lock that [Store.lock] takes, if nobody has it. ok is false if somebody has it, or a
// signal or a deletion came between, so that it is to be tried again; err is about the file.
func (s *Store) tryLock(kind, name string) (unlock func(), ok bool, err error) {
	if err := s.makeFolders(kind); err != nil {
		return nil, false, err
	}
	path := s.filePath(kind, name)
	l := newFlock(path)
	ok, err = l.TryLock()
	switch {
	case err != nil && isInterrupted(err):
		return nil, false, nil
	case err != nil:
		return nil, false, newLockError(path, err)
	case !ok:
		return nil, false, nil
	}
	// Somebody may have deleted the folder with all that is in it, between our opening
	// and our locking of the file: then this is not the lock that others take.
	current, err := isLockFileCurrent(l)
	if err != nil || !current {
		_ = l.Unlock()
		return nil, false, err
	}
	return func() { _ = l.Unlock() }, true, nil
}

// newFlock returns the lock of the file at path, which it has not taken yet.
func newFlock(path string) *flock.Flock {
	return flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|noFollow), flock.SetPermissions(0o600))
}

// isLockFileCurrent reports whether the file that l has locked is still the one at its path: not if somebody
// has deleted it since.
func isLockFileCurrent(l *flock.Flock) (bool, error) {
	held, err := l.Stat()
	if err != nil {
		return false, newReadError(l.Path(), err)
	}
	if !held.Mode().IsRegular() {
		return false, &Error{Kind: ErrUnsafe, Path: l.Path(), Detail: "it is no regular file"}
	}
	if err := checkOnlyOursAccess(l.Path(), held); err != nil {
		return false, err
	}
	named, err := os.Lstat(l.Path())
	return err == nil && os.SameFile(held, named), nil
}

// newLockError returns the Error for an error of locking the file at path: ErrNoLocks if the file system has
// no locks.
func newLockError(path string, err error) error {
	if isLockingUnsupported(err) {
		return &Error{Kind: ErrNoLocks, Path: path, Err: err}
	}
	return newSystemError(path, err)
}

// isLocked reports whether somebody has the lock of a file, without making the file. While it looks, a
// tryLock elsewhere fails.
func (s *Store) isLocked(kind, name string) (bool, error) {
	path := s.filePath(kind, name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	l := newFlock(path)
	free, err := l.TryRLock()
	if err != nil {
		return false, newLockError(path, err)
	}
	if free {
		_ = l.Unlock()
	}
	return !free, nil
}
