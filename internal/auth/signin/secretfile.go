package signin

import (
	"fmt"
	"os"
	"sync"
)

// A secretFile is a file with a secret or a key that may be replaced while the bridge runs. It may be used
// concurrently.
type secretFile[T any] struct {
	flag       string                       // the name of the flag, without "--", for errors
	path       string                       // the path of the file, the flag's value
	parse      func(text []byte) (T, error) // makes the value of the file's text
	isReadOnce bool                         // it is no regular file, such as a pipe: what it had is gone once it has been read, so lastValue stays

	mu        sync.Mutex // guards lastValue
	lastValue T          // what the file had when it was last read without an error
}

// openSecretFile returns the secretFile of the file at path, which it reads for the first time. flag is the flag that names the
// file, without dashes, for errors. parse makes the value of what is in the file.
func openSecretFile[T any](flag, path string, parse func([]byte) (T, error)) (*secretFile[T], error) {
	f := &secretFile[T]{flag: flag, path: path, parse: parse}
	info, err := os.Stat(path)
	if err == nil {
		f.isReadOnce = !info.Mode().IsRegular()
		f.lastValue, err = f.read()
	} else {
		err = fmt.Errorf("--%s: %w", flag, err)
	}
	return f, err
}

// read reads and parses the file.
func (f *secretFile[T]) read() (T, error) {
	text, err := readFlagFile(f.flag, f.path)
	if err != nil {
		var none T
		return none, err
	}
	return f.parse(text)
}

// current reads the file again, and returns what it has. If that fails, it returns an error and what the file had
// before: whoever replaces the file may have deleted or emptied it for a moment.
func (f *secretFile[T]) current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isReadOnce {
		return f.lastValue, nil
	}
	switch info, err := os.Stat(f.path); {
	case err != nil:
		return f.lastValue, fmt.Errorf("--%s: %w", f.flag, err)
	case !info.Mode().IsRegular(): // to open a pipe could take forever
		return f.lastValue, fmt.Errorf("--%s %s: it is no file any more", f.flag, f.path)
	}
	fresh, err := f.read()
	if err == nil {
		f.lastValue = fresh
	}
	return f.lastValue, err
}
