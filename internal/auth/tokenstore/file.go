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

// A Generation numbers the content of a file: it is another one after each change, and after a deletion it
// does not begin anew. Compare it for equality only. 0: there is no content.
type Generation int64

// next returns the generation of what replaces g. After 0 it is random, so that a file that was deleted and
// made again does not look like the old one.
func (g Generation) next() Generation {
	if g == 0 {
		return Generation(1 + rand.Int64N(1<<40))
	}
	return g + 1
}

const (
	// formatVersion is the version of the files' format that is written, and the latest that is understood.
	formatVersion = 1
	// maxFileBytes is how long a file of the store may be. Metadata documents are the largest content.
	maxFileBytes = 8 << 20
)

// A storeFile names one file of the store.
type storeFile struct {
	folder string // the subfolder that it is in (credentialFolder ...), which is also the kind of its content
	stem   string // the file's name without ".json"
}

// fileName returns its name, with ".json".
func (f storeFile) fileName() string { return f.stem + ".json" }

// A fileEnvelope is what each file of the store has around its content.
type fileEnvelope struct {
	Version    int             `json:"version"`          // formatVersion when it was written
	Kind       string          `json:"kind"`             // the folder of the storeFile, so that a file that was copied elsewhere is found out
	Name       string          `json:"name"`             // the stem of the storeFile
	Generation Generation      `json:"generation"`       // the generation of the content
	Plain      json.RawMessage `json:"plain,omitempty"`  // the content, as it is; nil: it is in Sealed
	Sealed     *sealedContent  `json:"sealed,omitempty"` // the content, encrypted; nil: it is in Plain
}

// parseEnvelope reads the envelope in data, which must be that of f. ErrNewer, ErrBroken: why it cannot. Its
// errors do not have the text of the JSON decoder, which may have a piece of the content.
func parseEnvelope(f storeFile, data []byte) (fileEnvelope, error) {
	var version struct {
		Version int `json:"version"`
	}
	if len(data) > maxFileBytes {
		return fileEnvelope{}, newBrokenError("it is larger than any file of ours")
	}
	if json.Unmarshal(data, &version) != nil {
		return fileEnvelope{}, newBrokenError("it is no JSON object with a version")
	}
	if version.Version > formatVersion {
		return fileEnvelope{}, &Error{Kind: ErrNewer, Detail: fmt.Sprintf("its format is %d, and this program knows %d", version.Version, formatVersion)}
	}
	var e fileEnvelope
	switch err := json.Unmarshal(data, &e); {
	case err != nil:
		return fileEnvelope{}, newBrokenError("it has not the fields of its format")
	case e.Version != formatVersion:
		return fileEnvelope{}, newBrokenError("it has no format that there ever was")
	case e.Kind != f.folder || e.Name != f.stem:
		return fileEnvelope{}, newBrokenError("it is the content of another file")
	case e.Generation < 0 || (e.Plain == nil) == (e.Sealed == nil):
		return fileEnvelope{}, newBrokenError("it has no content, or two")
	}
	return e, nil
}

// newBrokenError returns an Error of Kind ErrBroken with this detail.
func newBrokenError(why string) *Error { return &Error{Kind: ErrBroken, Detail: why} }

// withPath puts path into err, if that is an Error without a path, and returns err.
func withPath(err error, path string) error {
	if e, ok := err.(*Error); ok && e.Path == "" {
		e.Path = path
	}
	return err
}

// encodeFile returns the bytes of file f with this generation and content, encrypted if the store has a
// sealer. ErrInput: it would be too long, or is no JSON.
func (s *Store) encodeFile(f storeFile, g Generation, payload any) ([]byte, error) {
	content, err := json.Marshal(payload)
	if err != nil {
		return nil, &Error{Kind: ErrInput, Path: s.filePath(f.folder, f.fileName()), Detail: "it cannot be written as JSON"}
	}
	e := fileEnvelope{Version: formatVersion, Kind: f.folder, Name: f.stem, Generation: g, Plain: content}
	if s.sealer != nil {
		e.Plain, e.Sealed = nil, s.sealer.seal(f, g, content)
	}
	data, err := json.Marshal(e)
	if err == nil && len(data) > maxFileBytes {
		err = &Error{Kind: ErrInput, Path: s.filePath(f.folder, f.fileName()), Detail: fmt.Sprintf("it would have more than %d bytes", maxFileBytes)}
	}
	return append(data, '\n'), err
}

// decodeFile reads data, the bytes of file f, decrypts the content if need be, decodes it into payload, and
// returns its generation. ErrSealed: it is encrypted, and the store has no key; ErrPlain: the other way
// round.
func (s *Store) decodeFile(f storeFile, data []byte, payload any) (Generation, error) {
	e, err := parseEnvelope(f, data)
	if err != nil {
		return 0, err
	}
	content := []byte(e.Plain)
	switch {
	case e.Sealed != nil && s.sealer == nil:
		return 0, &Error{Kind: ErrSealed}
	case e.Sealed == nil && s.sealer != nil:
		return 0, &Error{Kind: ErrPlain}
	case e.Sealed != nil:
		if content, err = s.sealer.unseal(f, e.Generation, e.Sealed); err != nil {
			return 0, err
		}
	}
	if json.Unmarshal(content, payload) != nil {
		return 0, newBrokenError("its content has not the fields of its kind")
	}
	if p, ok := payload.(generationChecker); ok {
		return e.Generation, p.checkContent(e.Generation)
	}
	return e.Generation, nil
}

// A generationChecker is a content that must be checked after it was decoded, against its generation.
type generationChecker interface{ checkContent(Generation) error }

// readFileBytes returns the bytes of file f; nil without an error: there is no such file. The errors are those of
// checkFolders and of readPrivateFile.
func (s *Store) readFileBytes(f storeFile) ([]byte, error) {
	if ok, err := s.checkFolders(f.folder); !ok {
		return nil, err
	}
	return readPrivateFile(s.filePath(f.folder, f.fileName()))
}

// readPrivateFile returns the bytes of a file; nil without an error: there is no such file. ErrUnsafe: it is
// not this user's alone, or no regular file.
func readPrivateFile(path string) ([]byte, error) {
	var data []byte
	err := retryWhileHeldOpen(func() error {
		in, err := openForReading(path)
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
		if err := checkOnlyOursAccess(path, info); err != nil {
			return err
		}
		data, err = io.ReadAll(io.LimitReader(in, maxFileBytes+1))
		return err
	})
	var ours *Error
	switch {
	case errors.As(err, &ours):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, newReadError(path, err)
	}
	if data == nil {
		data = []byte{} // a file without content is there
	}
	return data, nil
}

// readFile reads file f and decodes its content into a new T. The caller needs no lock. Generation 0 without
// an error: there is no such file, or no content in it.
func readFile[T any](s *Store, f storeFile) (payload T, g Generation, err error) {
	data, err := s.readFileBytes(f)
	if data == nil {
		return payload, 0, err
	}
	if g, err = s.decodeFile(f, data, &payload); err != nil {
		var none T
		return none, 0, withPath(err, s.filePath(f.folder, f.fileName()))
	}
	return payload, g, nil
}

// readOrSetAside is readFile for a caller that has the lock of f: a broken file is also renamed
// (setBrokenAside), and the error says so.
func readOrSetAside[T any](s *Store, f storeFile) (T, Generation, error) {
	payload, g, err := readFile[T](s, f)
	if errors.Is(err, ErrBroken) {
		s.setBrokenAside(err)
	}
	return payload, g, err
}

// readWithoutLock is readFile for a caller that has no lock. If the file is broken it takes the lock, as long
// as ctx, reads again, and renames it if it is still broken. If the lock is not to be had, the broken file
// stays, and is reported.
func readWithoutLock[T any](ctx context.Context, s *Store, f storeFile) (T, Generation, error) {
	payload, g, err := readFile[T](s, f)
	if !errors.Is(err, ErrBroken) {
		return payload, g, err
	}
	unlock, lockErr := s.lock(ctx, f.folder, f.stem+lockSuffix)
	if lockErr != nil {
		return payload, g, err
	}
	defer unlock()
	return readOrSetAside[T](s, f)
}

// setBrokenAside renames the broken file that err is about, with the time in its new name, and sets MovedTo
// of err.
func (s *Store) setBrokenAside(err error) {
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
	if err := renameFile(e.Path, target); err != nil {
		e.Detail += "; it could not be set aside"
		e.Err = withoutPathError(err)
		return
	}
	e.MovedTo = target
	_ = syncFolder(filepath.Dir(target)) // the report is the same if the name is lost
}

// Endings of names beside a file's own.
const (
	lockSuffix  = ".lock"    // what follows a file's stem in the name of its lock file
	tempSuffix  = ".tmp"     // what follows a file's name in the name of the file that is being written to replace it
	brokenInfix = ".broken-" // behind a file's name, and before the time: a broken file that was set aside
)

// writeFile replaces file f in one step by one with this generation and content. Its caller has the lock of
// f, so that the temporary file can have a fixed name, and what a crash has left of it goes away with the
// next write.
func (s *Store) writeFile(f storeFile, g Generation, payload any) error {
	data, err := s.encodeFile(f, g, payload)
	if err != nil {
		return err
	}
	path := s.filePath(f.folder, f.fileName())
	temp := path + tempSuffix
	if err := s.writeTempFile(temp, data); err != nil {
		_ = os.Remove(temp)
		return newSystemError(path, err)
	}
	if err := renameFile(temp, path); err != nil {
		_ = os.Remove(temp)
		return newSystemError(path, err)
	}
	if err := s.injectedFault("renamed"); err != nil {
		return newSystemError(path, err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		e := newSystemError(path, err)
		e.Detail = "it is written, but a power failure may undo that"
		return e
	}
	return nil
}

// writeTempFile writes data into a new file, and brings it to the disk.
func (s *Store) writeTempFile(temp string, data []byte) error {
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return err
	}
	half := len(data) / 2
	if _, err = out.Write(data[:half]); err == nil {
		err = s.injectedFault("half")
	}
	if err == nil {
		_, err = out.Write(data[half:])
	}
	if err == nil {
		err = s.injectedFault("written")
	}
	if err == nil {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = s.injectedFault("synced")
	}
	return err
}

// injectedFault returns the error that a test wants at the step of this name; nil outside of tests.
func (s *Store) injectedFault(name string) error {
	if s.injectFault == nil {
		return nil
	}
	return s.injectFault(name)
}

// renameFile renames a file, and replaces a file that has the new name.
func renameFile(from, to string) error {
	return retryWhileHeldOpen(func() error { return os.Rename(from, to) })
}

// removeFile deletes a file. That it is missing is no error.
func removeFile(path string) error {
	err := retryWhileHeldOpen(func() error { return os.Remove(path) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return newSystemError(path, err)
	}
	return nil
}

// retryWhileHeldOpen calls do, and calls it again, for up to about a second, as long as its error is
// isHeldOpen. It returns the last error.
func retryWhileHeldOpen(do func() error) error {
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
