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
	c, g, err := load[storedCredential](ctx, s, f)
	if err != nil {
		return Entry{Key: key}, err
	}
	return c.entry(key, g)
}

// Save stores c under key if the generation stored now is read, and returns
// the new generation. Else it returns [ErrStale] and writes nothing. It waits for the
// lock, as long as ctx. See [Locked.Save].
func (s *Store) Save(ctx context.Context, key Key, c Credential, read Generation) (g Generation, err error) {
	err = s.WithLock(ctx, key, func(l *Locked) error {
		g, err = l.Save(c, read)
		return err
	})
	return g, err
}

// WithLock takes the lock of key, reads what is stored, calls work, and
// releases the lock. All processes exclude each other so. It waits for the lock as
// long as ctx, also when the holder is stopped; it returns [ErrBusy] then.
// What work returns, WithLock returns.
//
// work may take its time, and may call the network; but it must end, since
// others wait. It must not take the lock of the same key.
func (s *Store) WithLock(ctx context.Context, key Key, work func(*Locked) error) error {
	f, err := credentialFile(key)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, f.kind, f.stem+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	l := &Locked{s: s, f: f, key: key}
	if err := l.read(); err != nil {
		return err
	}
	defer func() { l.released = true }()
	return work(l)
}

func credentialFile(key Key) (file, error) {
	_, err := ParseKey(string(key))
	return file{credentialFolder, string(key)}, err
}

// A Locked is a credential whose lock is held. It is for the goroutine in which
// [Store.WithLock] calls work, until work returns; after that its methods return [ErrReleased].
type Locked struct {
	s        *Store
	f        file
	key      Key
	stored   storedCredential
	entry    Entry
	released bool
}

// String returns the key.
func (l *Locked) String() string { return "locked credential " + string(l.key) }

// GoString returns what String returns.
func (l *Locked) GoString() string { return l.String() }

// Entry returns what is stored: what was read after the lock was taken, and
// what the other methods have made of it.
func (l *Locked) Entry() Entry { return l.entry }

// read reads the file anew.
func (l *Locked) read() error {
	if l.released {
		return &Error{Kind: ErrReleased, Path: l.s.path(l.f.kind, l.f.fileName())}
	}
	c, g, err := readLocked[storedCredential](l.s, l.f)
	if err != nil {
		return err
	}
	l.stored = c
	l.entry, err = c.entry(l.key, g)
	return err
}

// put writes what is to be stored, under generation g.
func (l *Locked) put(c storedCredential, g Generation) error {
	if err := l.s.write(l.f, g, c); err != nil {
		return err
	}
	var err error
	l.stored = c
	l.entry, err = c.entry(l.key, g)
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
func (l *Locked) Save(c Credential, read Generation) (Generation, error) {
	if err := l.read(); err != nil {
		return 0, err
	}
	if l.entry.Generation != read {
		return 0, &Error{Kind: ErrStale, Path: l.s.path(l.f.kind, l.f.fileName())}
	}
	b, err := pack(c, c.secrets())
	if err != nil {
		return 0, withPath(err, l.s.path(l.f.kind, l.f.fileName()))
	}
	next := l.stored
	next.Credential = &b
	if old := l.entry.Credential.Refresh; !old.Equal(c.Refresh) {
		next.SpentRefresh = withSpent(next.SpentRefresh, l.key, old)
	}
	next.SpentRefresh = withoutSpent(next.SpentRefresh, l.key, c.Refresh)
	g := read.next()
	if err := l.put(next, g); err != nil {
		return 0, err
	}
	return g, nil
}

// Delete deletes the credential with all that is stored with it, like [Store.Delete].
func (l *Locked) Delete() error {
	if l.released {
		return &Error{Kind: ErrReleased, Path: l.s.path(l.f.kind, l.f.fileName())}
	}
	if err := l.s.deleteFiles(l.key); err != nil {
		return err
	}
	l.stored, l.entry = storedCredential{}, Entry{Key: l.key}
	return nil
}
