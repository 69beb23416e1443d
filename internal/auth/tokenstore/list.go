package tokenstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// ListEntry is one key of a [Store.List]. It is a value, as a Credential is.
type ListEntry struct {
	Key         Key      // the key
	Entry       Entry    // what is stored under Key; generation 0: no credential
	Err         error    // why the credential cannot be read; a broken file is left where it is
	BrokenFiles []string // paths of broken files that were set aside
}

// List returns every key under which a credential is stored, or a broken file was set aside, in order. It
// takes no lock and changes nothing.
func (s *Store) List() ([]ListEntry, error) {
	names, err := s.fileNames(credentialFolder)
	if err != nil {
		return nil, err
	}
	var all []ListEntry
	for _, name := range names { // in order, so that what belongs to a key is together
		base, rest, _ := strings.Cut(name, ".")
		key, err := ParseKey(base)
		aside := strings.HasPrefix(rest, "json"+brokenInfix)
		if err != nil || !aside && rest != "json" {
			continue
		}
		if len(all) == 0 || all[len(all)-1].Key != key {
			all = append(all, ListEntry{Key: key, Entry: Entry{Key: key}})
		}
		l := &all[len(all)-1]
		if aside {
			l.BrokenFiles = append(l.BrokenFiles, s.filePath(credentialFolder, name))
			continue
		}
		var c storedCredential
		var g Generation
		if c, g, l.Err = readFile[storedCredential](s, storeFile{credentialFolder, base}); l.Err == nil {
			l.Entry, l.Err = c.toEntry(key, g)
		}
	}
	return all, nil
}

// fileNames returns the names of the files in a subfolder, in order; none if there is no such folder.
func (s *Store) fileNames(kind string) ([]string, error) {
	if ok, err := s.checkFolders(kind); !ok {
		return nil, err
	}
	dir := filepath.Join(s.dir, layoutFolder, kind)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, newReadError(dir, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// IssuersWithRegistrations returns the issuers at which clients are registered. err is about the files that
// cannot be read; the other issuers are returned all the same.
func (s *Store) IssuersWithRegistrations() (issuers []string, err error) {
	names, err := s.fileNames(clientFolder)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, name := range names {
		base, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		switch c, g, err := readFile[storedRegistrations](s, storeFile{clientFolder, base}); {
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
	unlock, err := s.lock(ctx, f.folder, f.stem+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	return s.deleteFiles(key)
}

// deleteFiles is Delete for a caller that has the lock of the credential. It does not take the lock of the
// metadata: who writes it meanwhile writes what is still true.
func (s *Store) deleteFiles(key Key) error {
	var problems []error
	if unlock, ok, err := s.tryLock(credentialFolder, string(key)+loginSuffix); err != nil {
		problems = append(problems, err)
	} else if ok {
		l := LoginLock{store: s, file: storeFile{credentialFolder, string(key) + loginSuffix}, unlock: unlock}
		problems = append(problems, l.Release()) // what a killed process has announced
	}
	for _, kind := range []string{credentialFolder, metadataFolder} {
		names, err := s.fileNames(kind)
		if err != nil {
			return err
		}
		own := string(key) + ".json"
		for _, name := range names {
			if name == own || name == own+tempSuffix || strings.HasPrefix(name, own+brokenInfix) {
				problems = append(problems, removeFile(s.filePath(kind, name)))
			}
		}
		if err := syncFolder(filepath.Join(s.dir, layoutFolder, kind)); err != nil {
			problems = append(problems, newSystemError(filepath.Join(s.dir, layoutFolder, kind), err))
		}
	}
	return errors.Join(problems...)
}
