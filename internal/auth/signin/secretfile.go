package signin

import (
	"fmt"
	"os"
	"sync"
)

// A secretFile is a file with a secret or a key that may be replaced while the bridge runs. It is safe for concurrent use.
type secretFile[T any] struct {
	flag, path string // the flag, without "--", is for errors
	parse      func(text []byte) (T, error)
	isReadOnce bool // it is no regular file, such as a pipe: what it had is gone when it has been read

	mu        sync.Mutex
	lastValue T // what the file had when it could be read last
}

// openSecretFile reads a file for the first time.
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

func (f *secretFile[T]) read() (T, error) {
	text, err := readFlagFile(f.flag, f.path)
	if err != nil {
		var none T
		return none, err
	}
	return f.parse(text)
}

// current returns what the file has. If the file cannot be read, it returns an error, and what the file had before:
// whoever replaces the file may have deleted or emptied it for a moment.
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
