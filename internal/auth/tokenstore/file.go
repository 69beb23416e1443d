package tokenstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// A Generation tells one content of a file from every other: it is another one after
// each change, and after a deletion it does not begin anew. Compare it for
// equality only. 0 is no content.
type Generation int64

// next returns the generation of what replaces g. The first one is random, so that
// a file that was deleted and made again does not look like the old one.
func (g Generation) next() Generation {
	if g == 0 {
		return Generation(1 + rand.Int64N(1<<40))
	}
	return g + 1
}

const (
	// formatVersion is the version of files that is written, and the latest that is understood.
	formatVersion = 1
	// maxFile bounds what a file may have. Metadata documents are the largest content.
	maxFile = 8 << 20
)

// A file is one file of the store: the folder it is in, which is also the kind of
// its content, and its name without ".json".
type file struct{ kind, stem string }

func (f file) fileName() string { return f.stem + ".json" }

// An envelope is what is in a file.
type envelope struct {
	Version    int             `json:"version"`
	Kind       string          `json:"kind"`
	Name       string          `json:"name"`
	Generation Generation      `json:"generation"`
	Plain      json.RawMessage `json:"plain,omitempty"`
	Sealed     *sealedContent  `json:"sealed,omitempty"`
}

// parseEnvelope reads the content of f. Of the reasons why it cannot, the text of the JSON decoder
// is not given: it may have a piece of the content.
func parseEnvelope(f file, data []byte) (envelope, error) {
	var version struct {
		Version int `json:"version"`
	}
	if len(data) > maxFile {
		return envelope{}, brokenError("it is larger than any file of ours")
	}
	if json.Unmarshal(data, &version) != nil {
		return envelope{}, brokenError("it is no JSON object with a version")
	}
	if version.Version > formatVersion {
		return envelope{}, &Error{Kind: ErrNewer, Detail: fmt.Sprintf("its format is %d, and this program knows %d", version.Version, formatVersion)}
	}
	var e envelope
	switch err := json.Unmarshal(data, &e); {
	case err != nil:
		return envelope{}, brokenError("it has not the fields of its format")
	case e.Version != formatVersion:
		return envelope{}, brokenError("it has no format that there ever was")
	case e.Kind != f.kind || e.Name != f.stem:
		return envelope{}, brokenError("it is the content of another file")
	case e.Generation < 0 || (e.Plain == nil) == (e.Sealed == nil):
		return envelope{}, brokenError("it has no content, or two")
	}
	return e, nil
}

func brokenError(why string) *Error { return &Error{Kind: ErrBroken, Detail: why} }

// withPath gives an error of a file's content the path of the file.
func withPath(err error, path string) error {
	if e, ok := err.(*Error); ok && e.Path == "" {
		e.Path = path
	}
	return err
}

// encode returns what is to be in file f.
func (s *Store) encode(f file, g Generation, payload any) ([]byte, error) {
	content, err := json.Marshal(payload)
	if err != nil {
		return nil, &Error{Kind: ErrInput, Path: s.path(f.kind, f.fileName()), Detail: "it cannot be written as JSON"}
	}
	e := envelope{Version: formatVersion, Kind: f.kind, Name: f.stem, Generation: g, Plain: content}
	if s.seal != nil {
		e.Plain, e.Sealed = nil, s.seal.seal(f, g, content)
	}
	data, err := json.Marshal(e)
	if err == nil && len(data) > maxFile {
		err = &Error{Kind: ErrInput, Path: s.path(f.kind, f.fileName()), Detail: fmt.Sprintf("it would have more than %d bytes", maxFile)}
	}
	return append(data, '\n'), err
}

// decode reads the content of f into payload, and returns its generation.
func (s *Store) decode(f file, data []byte, payload any) (Generation, error) {
	e, err := parseEnvelope(f, data)
	if err != nil {
		return 0, err
	}
	content := []byte(e.Plain)
	switch {
	case e.Sealed != nil && s.seal == nil:
		return 0, &Error{Kind: ErrSealed}
	case e.Sealed == nil && s.seal != nil:
		return 0, &Error{Kind: ErrPlain}
	case e.Sealed != nil:
		if content, err = s.seal.open(f, e.Generation, e.Sealed); err != nil {
			return 0, err
		}
	}
	if json.Unmarshal(content, payload) != nil {
		return 0, brokenError("its content has not the fields of its kind")
	}
	if p, ok := payload.(contentChecker); ok {
		return e.Generation, p.check(e.Generation)
	}
	return e.Generation, nil
}

// A contentChecker content can be broken though JSON decodes it.
type contentChecker interface{ check(Generation) error }

// readRaw returns what is in file f; nil if there is no such file.
func (s *Store) readRaw(f file) ([]byte, error) {
	if ok, err := s.checkFolders(f.kind); !ok {
		return nil, err
	}
	return readPrivate(s.path(f.kind, f.fileName()))
}

// readPrivate returns what is in a file of this user's alone; nil if there is no such file.
func readPrivate(path string) ([]byte, error) {
	var data []byte
	err := retryWhileOpen(func() error {
		in, err := openToRead(path)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return &Error{Kind: ErrUnsafe, Path: path, Detail: "it is no regular file"}
		}
		if err := checkPrivate(path, info); err != nil {
			return err
		}
		data, err = io.ReadAll(io.LimitReader(in, maxFile+1))
		return err
	})
	var ours *Error
	switch {
	case errors.As(err, &ours):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, readError(path, err)
	}
	if data == nil {
		data = []byte{} // a file without content is there
	}
	return data, nil
}

// read reads file f into a new T. Nobody needs the lock for it. Generation 0
// with no error: there is no such file, or no content in it.
func read[T any](s *Store, f file) (payload T, g Generation, err error) {
	data, err := s.readRaw(f)
	if data == nil {
		return payload, 0, err
	}
	if g, err = s.decode(f, data, &payload); err != nil {
		var none T
		return none, 0, withPath(err, s.path(f.kind, f.fileName()))
	}
	return payload, g, nil
}

// readLocked is read for who has the lock of f: a broken file is set aside.
func readLocked[T any](s *Store, f file) (T, Generation, error) {
	payload, g, err := read[T](s, f)
	if errors.Is(err, ErrBroken) {
		s.setAside(err)
	}
	return payload, g, err
}

// load is read for who has no lock. To set a broken file aside it takes the
// lock, since the file may be a good one by then. If the lock is not to be had, the
// broken file stays, and is reported.
func load[T any](ctx context.Context, s *Store, f file) (T, Generation, error) {
	payload, g, err := read[T](s, f)
	if !errors.Is(err, ErrBroken) {
		return payload, g, err
	}
	unlock, lockErr := s.lock(ctx, f.kind, f.stem+lockSuffix)
	if lockErr != nil {
		return payload, g, err
	}
	defer unlock()
	return readLocked[T](s, f)
}

// setAside renames the broken file that err is about, and notes its new name in err.
func (s *Store) setAside(err error) {
	e, ok := err.(*Error)
	if !ok {
		return
	}
	at := s.now()
	target := e.Path + brokenInfix + at.UTC().Format("20060102T150405.000000000Z")
	for n := 1; n < 100; n++ { // the clock may stand still
		if _, missing := os.Lstat(target); missing != nil {
			break
		}
		at = at.Add(1)
		target = e.Path + brokenInfix + at.UTC().Format("20060102T150405.000000000Z")
	}
	if err := rename(e.Path, target); err != nil {
		e.Detail += "; it could not be set aside"
		e.Err = cause(err)
		return
	}
	e.MovedTo = target
	_ = syncFolder(filepath.Dir(target)) // the report is the same if the name is lost
}

// Endings of names beside a file's own.
const (
	lockSuffix  = ".lock"
	tempSuffix  = ".tmp"
	brokenInfix = ".broken-"
)

// write replaces file f. Its caller has the lock of f, so that the name of the temporary
// file can be a fixed one, and what a crash has left of it goes away with the next write.
func (s *Store) write(f file, g Generation, payload any) error {
	data, err := s.encode(f, g, payload)
	if err != nil {
		return err
	}
	path := s.path(f.kind, f.fileName())
	temp := path + tempSuffix
	if err := s.writeTemp(temp, data); err != nil {
		_ = os.Remove(temp)
		return systemError(path, err)
	}
	if err := rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return systemError(path, err)
	}
	if err := s.testFault("renamed"); err != nil {
		return systemError(path, err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		e := systemError(path, err)
		e.Detail = "it is written, but a power failure may undo that"
		return e
	}
	return nil
}

func (s *Store) writeTemp(temp string, data []byte) error {
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return err
	}
	half := len(data) / 2
	if _, err = out.Write(data[:half]); err == nil {
		err = s.testFault("half")
	}
	if err == nil {
		_, err = out.Write(data[half:])
	}
	if err == nil {
		err = s.testFault("written")
	}
	if err == nil {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = s.testFault("synced")
	}
	return err
}

func (s *Store) testFault(name string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(name)
}

// rename renames a file, over another one if there is one.
func rename(from, to string) error {
	return retryWhileOpen(func() error { return os.Rename(from, to) })
}

// remove deletes a file, which may be missing.
func remove(path string) error {
	err := retryWhileOpen(func() error { return os.Remove(path) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return systemError(path, err)
	}
	return nil
}

// retryWhileOpen calls do again, for up to about a second, while somebody has the file open.
func retryWhileOpen(do func() error) error {
	wait := time.Millisecond
	for {
		err := do()
		if err == nil || !isHeldOpen(err) || wait > 512*time.Millisecond {
			return err
		}
		time.Sleep(wait)
		wait *= 2
	}
}
