package tokenstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Listed is one key of a [Store.List]. It is a value, as a Credential is.
type Listed struct {
	Key         Key
	Entry       Entry    // what is stored; generation 0: nothing
	Err         error    // why that cannot be told; a broken file is left where it is
	BrokenFiles []string // paths of broken files that were set aside
}

// List returns every key under which something is stored or was set aside, in
// order. It takes no lock and changes nothing.
func (s *Store) List() ([]Listed, error) {
	names, err := s.names(credentials)
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, name := range names { // in order, so that what belongs to a key is together
		base, rest, _ := strings.Cut(name, ".")
		key, err := ParseKey(base)
		aside := strings.HasPrefix(rest, "json"+brokenMark)
		if err != nil || !aside && rest != "json" {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Key != key {
			all = append(all, Listed{Key: key, Entry: Entry{Key: key}})
		}
		l := &all[len(all)-1]
		if aside {
			l.BrokenFiles = append(l.BrokenFiles, s.path(credentials, name))
			continue
		}
		var c stored
		var g Generation
		if c, g, l.Err = read[stored](s, file{credentials, base}); l.Err == nil {
			l.Entry, l.Err = c.entry(key, g)
		}
	}
	return all, nil
}

// names returns the names in a subfolder, in order.
func (s *Store) names(kind string) ([]string, error) {
	if ok, err := s.check(kind); !ok {
		return nil, err
	}
	dir := filepath.Join(s.dir, layout, kind)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, readError(dir, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Issuers returns the issuers with registrations. The error tells of the files
// that cannot be read, the others are returned all the same.
func (s *Store) Issuers() (issuers []string, err error) {
	names, err := s.names(clients)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, name := range names {
		base, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		switch c, g, err := read[storedClients](s, file{clients, base}); {
		case err != nil:
			problems = append(problems, err)
		case g != 0:
			issuers = append(issuers, c.Issuer)
		}
	}
	return issuers, errors.Join(problems...)
}

// Delete deletes what is stored under key: the credential, whatever its format, what is
// stored with it, the metadata, and broken files that were set aside. Lock files and registrations
// stay, and what a sign-in has announced that is still under way. A Save that is under way elsewhere
// finds its generation gone. It waits for the lock as long as ctx.
func (s *Store) Delete(ctx context.Context, key Key) error {
	f, err := credentialFile(key)
	if err != nil {
		return err
	}
	unlock, err := s.lock(ctx, f.kind, f.stem+lockEnding)
	if err != nil {
		return err
	}
	defer unlock()
	return s.deleteFiles(key)
}

// deleteFiles is Delete for who has the lock of the credential. That of the metadata is not
// taken: who writes it meanwhile writes what is still true.
func (s *Store) deleteFiles(key Key) error {
	var problems []error
	if unlock, ok, err := s.tryLock(credentials, string(key)+loginEnding); err != nil {
		problems = append(problems, err)
	} else if ok {
		l := LoginLock{s: s, f: file{credentials, string(key) + loginEnding}, unlock: unlock}
		problems = append(problems, l.Release()) // what a killed process has announced
	}
	for _, kind := range []string{credentials, metadata} {
		names, err := s.names(kind)
		if err != nil {
			return err
		}
		own := string(key) + ".json"
		for _, name := range names {
			if name == own || name == own+tempEnding || strings.HasPrefix(name, own+brokenMark) {
				problems = append(problems, remove(s.path(kind, name)))
			}
		}
		if err := syncFolder(filepath.Join(s.dir, layout, kind)); err != nil {
			problems = append(problems, systemError(filepath.Join(s.dir, layout, kind), err))
		}
	}
	return errors.Join(problems...)
}
