package tokenstore

import "context"

// Load returns what is stored under key. It needs no lock and does not wait,
// unless a broken file is to be set aside: then for the lock, as long as ctx.
// If nothing is stored the Entry has generation 0.
func (s *Store) Load(ctx context.Context, key Key) (Entry, error) {
	f, err := credentialFile(key)
	if err != nil {
		return Entry{}, err
	}
	c, g, err := readWithoutLock[storedCredential](ctx, s, f)
	if err != nil {
		return Entry{Key: key}, err
	}
	return c.toEntry(key, g)
}

// Save stores c under key if the generation stored now is read, and returns
// the new generation. Else it returns [ErrStale] and writes nothing. It waits for the
// lock, as long as ctx. See [LockedCredential.Save].
func (s *Store) Save(ctx context.Context, key Key, c Credential, read Generation) (g Generation, err error) {
	err = s.WithLock(ctx, key, func(l *LockedCredential) error {
		g, err = l.Save(c, read)
		return err
	})
	return g, err
}

// WithLock takes the lock of key, reads what is stored, calls work, and
// releases the lock. All processes exclude each other so. It waits for the lock as
// long as ctx, also when the holder is stopped; it returns [ErrBusy] then.
// What work returns, WithLock returns. [ErrBroken]: what is stored cannot be
// understood; it was set aside (Error.MovedTo), and work was not called.
//
// work may take its time, and may call the network; but it must end, since
// others wait. It must not take the lock of the same key.
func (s *Store) WithLock(ctx context.Context, key Key, work func(*LockedCredential) error) error {
	f, err := credentialFile(key)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, f.folder, f.stem+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	l := &LockedCredential{store: s, file: f, key: key}
	if err := l.readContent(); err != nil {
		return err
	}
	defer func() { l.isReleased = true }()
	return work(l)
}

// credentialFile returns the storeFile of the credential with this key. ErrInput: it is no Key.
func credentialFile(key Key) (storeFile, error) {
	_, err := ParseKey(string(key))
	return storeFile{credentialFolder, string(key)}, err
}

// A LockedCredential is a credential whose lock is held. It is for the goroutine in which [Store.WithLock]
// calls work, until work returns; after that its methods fail with [ErrReleased].
type LockedCredential struct {
	store      *Store           // the Store that it is in
	file       storeFile        // the file of the credential
	key        Key              // the key of the credential
	content    storedCredential // what was last read from the file, or written to it
	entry      Entry            // content as the Entry that callers get
	isReleased bool             // work has returned, and the lock is released
}

// String returns text with the key.
func (l *LockedCredential) String() string { return "locked credential " + string(l.key) }

// GoString returns what String returns.
func (l *LockedCredential) GoString() string { return l.String() }

// Entry returns what is stored, as it was when WithLock or another method last read or wrote it.
func (l *LockedCredential) Entry() Entry { return l.entry }

// readContent reads the file again, into content and entry. ErrReleased: the lock was released.
func (l *LockedCredential) readContent() error {
	if l.isReleased {
		return &Error{Kind: ErrReleased, Path: l.store.filePath(l.file.folder, l.file.fileName())}
	}
	c, g, err := readOrSetAside[storedCredential](l.store, l.file)
	if err != nil {
		return err
	}
	l.content = c
	l.entry, err = c.toEntry(l.key, g)
	return err
}

// writeContent writes c into the file, with generation g for the credential in it.
func (l *LockedCredential) writeContent(c storedCredential, g Generation) error {
	if err := l.store.writeFile(l.file, g, c); err != nil {
		return err
	}
	var err error
	l.content = c
	l.entry, err = c.toEntry(l.key, g)
	return err
}

// Save stores c in the place of the credential of generation read, and returns
// the new generation. If another one is stored now, which can be where somebody
// ignores locks, it returns [ErrStale] and writes nothing.
//
// A refresh token that c has not, and the stored one had, counts as spent from now on;
// the one that c has does not, since the issuer has just given it.
//
// After [ErrFull] or another error of the disk the same Save may be tried again, also in a later
// WithLock: tokens that the issuer has just given need not be lost.
func (l *LockedCredential) Save(c Credential, read Generation) (Generation, error) {
	if err := l.readContent(); err != nil {
		return 0, err
	}
	if l.entry.Generation != read {
		return 0, &Error{Kind: ErrStale, Path: l.store.filePath(l.file.folder, l.file.fileName())}
	}
	b, err := pack(c, c.secretsByName())
	if err != nil {
		return 0, withPath(err, l.store.filePath(l.file.folder, l.file.fileName()))
	}
	next := l.content
	next.Credential = &b
	if old := l.entry.Credential.RefreshToken; !old.Equal(c.RefreshToken) {
		next.SpentRefreshHashes = addSpentHash(next.SpentRefreshHashes, l.key, old)
	}
	next.SpentRefreshHashes = removeSpentHash(next.SpentRefreshHashes, l.key, c.RefreshToken)
	g := read.next()
	if err := l.writeContent(next, g); err != nil {
		return 0, err
	}
	return g, nil
}

// Delete deletes the credential with all that is stored with it, like [Store.Delete].
func (l *LockedCredential) Delete() error {
	if l.isReleased {
		return &Error{Kind: ErrReleased, Path: l.store.filePath(l.file.folder, l.file.fileName())}
	}
	if err := l.store.deleteFiles(l.key); err != nil {
		return err
	}
	l.content, l.entry = storedCredential{}, Entry{Key: l.key}
	return nil
}
