package tokenstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"
)

// A LoginAnnouncement is what other processes may know of a sign-in under way. It is a value, as a Credential
// is. What a person is shown is no [Secret]; the code verifier is not in it.
type LoginAnnouncement struct {
	Server      string    `json:"server,omitempty"`   // URL of the MCP server, for people
	Profile     string    `json:"profile,omitempty"`  // Identity.Profile, for people
	PID         int       `json:"pid"`                // the id of the process that signs in; 0: nothing was announced yet (PendingLogin)
	SignInURL   string    `json:"url,omitempty"`      // the page that the person opens
	UserCode    string    `json:"userCode,omitempty"` // what the person types there; "": nothing
	RedirectURI string    `json:"redirect,omitempty"` // where the browser comes back to; "": nowhere, the person has a code
	Expires     time.Time `json:"expires,omitzero"`   // when the process gives up
}

// loginSuffix stands behind the key in the name of the lock file of a sign-in. The announcement has that name
// with ".json".
const loginSuffix = ".login"

// loginFile returns the storeFile of the announcement of a sign-in under key. ErrInput: it is no Key.
func loginFile(key Key) (storeFile, error) {
	_, err := ParseKey(string(key))
	return storeFile{credentialFolder, string(key) + loginSuffix}, err
}

// A LoginLock is the right to sign in under a key, which one caller has at a time, in all
// processes. One goroutine at a time may use it. The kernel releases it when the process dies.
type LoginLock struct {
	store  *Store    // the Store that it is in
	file   storeFile // the file of the announcement; the lock file has its stem as name
	unlock func()    // releases the lock; nil: it was released
}

// String returns text with the name of the lock file.
func (l *LoginLock) String() string { return "sign-in lock " + l.file.stem }

// GoString returns what String returns.
func (l *LoginLock) GoString() string { return l.String() }

// LockLogin takes the right to sign in under key. It waits for it as long as ctx; [ErrBusy]: ctx was done
// first. The lock is another one than that of [Store.WithLock].
func (s *Store) LockLogin(ctx context.Context, key Key) (*LoginLock, error) {
	f, err := loginFile(key)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx, f.folder, f.stem)
	if err != nil {
		return nil, err
	}
	l := &LoginLock{store: s, file: f, unlock: unlock}
	if err := l.deleteAnnouncement(); err != nil { // what a process has left that was killed
		unlock()
		return nil, err
	}
	return l, nil
}

// tryLoginTimeout is how long TryLockLogin tries. PendingLogin takes the lock for microseconds, and that must
// not be taken for a sign-in.
const tryLoginTimeout = 200 * time.Millisecond

// TryLockLogin is LockLogin for a caller that does not wait for another process to sign in: if one does, it
// returns [ErrBusy] after 200 ms.
func (s *Store) TryLockLogin(key Key) (*LoginLock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tryLoginTimeout)
	defer cancel()
	return s.LockLogin(ctx, key)
}

// Announce stores what other processes may know of the sign-in, in the place of what was announced before.
func (l *LoginLock) Announce(login LoginAnnouncement) error {
	if l.unlock == nil {
		return &Error{Kind: ErrReleased, Path: l.store.filePath(l.file.folder, l.file.stem)}
	}
	return l.store.writeFile(l.file, Generation(0).next(), login)
}

// IsCancelled reports whether the announcement is gone, because somebody has called [Store.CancelLogin]. It
// is also true before Announce and after Release.
func (l *LoginLock) IsCancelled() bool {
	if l.unlock == nil {
		return true
	}
	_, err := os.Lstat(l.store.filePath(l.file.folder, l.file.fileName()))
	return errors.Is(err, fs.ErrNotExist)
}

// Release ends the sign-in: what was announced is deleted, and others may sign in. After
// the first call it does nothing.
func (l *LoginLock) Release() error {
	if l.unlock == nil {
		return nil
	}
	err := l.deleteAnnouncement()
	l.unlock()
	l.unlock = nil
	return err
}

// deleteAnnouncement deletes the announcement. That there is none is no error.
func (l *LoginLock) deleteAnnouncement() error {
	path := l.store.filePath(l.file.folder, l.file.fileName())
	if err := removeFile(path); err != nil {
		return err
	}
	return removeFile(path + tempSuffix)
}

// PendingLogin reports whether a process is signing in under key, and returns what it has announced: the zero
// LoginAnnouncement if it has announced nothing yet.
func (s *Store) PendingLogin(key Key) (login LoginAnnouncement, pending bool, err error) {
	f, err := loginFile(key)
	if err != nil {
		return LoginAnnouncement{}, false, err
	}
	if ok, err := s.checkFolders(f.folder); !ok {
		return LoginAnnouncement{}, false, err
	}
	if pending, err = s.isLocked(f.folder, f.stem); err != nil || !pending {
		return LoginAnnouncement{}, false, err
	}
	login, _, err = readFile[LoginAnnouncement](s, f)
	return login, true, err
}

// CancelLogin asks the process that signs in under key, if there is one, to give up. It deletes the
// announcement, which that process looks for, and does not wait.
func (s *Store) CancelLogin(key Key) error {
	f, err := loginFile(key)
	if err != nil {
		return err
	}
	if ok, err := s.checkFolders(f.folder); !ok {
		return err
	}
	return removeFile(s.filePath(f.folder, f.fileName()))
}

// A PendingLoginEntry is a sign-in that PendingLogins has found. It is a value.
type PendingLoginEntry struct {
	Key   Key               // the key under which the credential of the sign-in is to be stored
	Login LoginAnnouncement // what the process that signs in has announced: which process it is, and where the person signs in
}

// PendingLogins returns the sign-ins that are under way and have been announced, in the order of their keys.
func (s *Store) PendingLogins() ([]PendingLoginEntry, error) {
	names, err := s.fileNames(credentialFolder)
	if err != nil {
		return nil, err
	}
	var all []PendingLoginEntry
	for _, name := range names {
		base, ok := strings.CutSuffix(name, loginSuffix+".json")
		key, err := ParseKey(base)
		if !ok || err != nil {
			continue
		}
		if login, pending, err := s.PendingLogin(key); err == nil && pending && login.PID != 0 {
			all = append(all, PendingLoginEntry{key, login})
		}
	}
	return all, nil
}
