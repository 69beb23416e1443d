package tokenstore

import (
	"context"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/internal/watch"
)

// WatchGeneration calls onChange when the generation stored under key is another one than known, and then
// each time it changes again; 0: the credential was deleted. err says that the file cannot be read or understood now.
// It looks at the generation only: to get the credential, or to have a broken file set aside, call
// [Store.Load]. A change is told within a quarter of a second, or within ten seconds where the file system
// reports none; of changes that follow each other faster, the last one.
//
// WatchGeneration returns when ctx is done. The goroutine that called WatchGeneration calls onChange.
func (s *Store) WatchGeneration(ctx context.Context, key Key, known Generation, onChange func(g Generation, err error)) error {
	f, err := credentialFile(key)
	if err != nil {
		return err
	}
	path := s.filePath(f.folder, f.fileName())
	var last ErrorKind
	look := func() {
		g, err := s.readGeneration(f)
		var kind ErrorKind
		_ = errors.As(err, &kind)
		if ctx.Err() == nil && (g != known || kind != last) {
			known, last = g, kind
			onChange(g, err)
		}
	}
	files := func() []string {
		// Between the reading of known and the first look of package watch the file may have
		// changed. That package asks for the files again after its first look.
		look()
		return []string{path}
	}
	watch.Files(ctx, files, look)
	return nil
}

// readGeneration returns the generation of file f, without decrypting its content; 0 without an error: there
// is no such file.
func (s *Store) readGeneration(f storeFile) (Generation, error) {
	data, err := s.readFileBytes(f)
	if data == nil {
		return 0, err
	}
	e, err := parseEnvelope(f, data)
	return e.Generation, withPath(err, s.filePath(f.folder, f.fileName()))
}
