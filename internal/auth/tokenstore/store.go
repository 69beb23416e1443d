package tokenstore

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Options say how a Store works. They are read by [Open] only.
type Options struct {
	// Dir is the store's folder; "": [DefaultDir]. It is made if it is missing.
	Dir string
	// Keyring holds the key with which files are encrypted; nil: they are not encrypted.
	Keyring Keyring
}

// A Store keeps credentials in one folder. All methods may be called concurrently, also by other processes in
// the same folder.
type Store struct {
	dir    string           // the folder, absolute
	sealer *sealer          // encrypts and decrypts contents; nil: files are plain
	now    func() time.Time // the clock
	// injectFault, in tests, is called at each step of a write, and ends it with its error.
	injectFault func(step string) error
}

// DefaultDir returns the folder of the user's credentials:
// $XDG_STATE_HOME/mcp-bridge/auth or ~/.local/state/mcp-bridge/auth, on macOS
// ~/Library/Application Support/mcp-bridge/auth, on Windows %LocalAppData%\mcp-bridge\auth.
func DefaultDir() (string, error) {
	var base string
	var err error
	switch runtime.GOOS {
	case "windows":
		base, err = os.UserCacheDir() // %LocalAppData%
	case "darwin", "ios":
		base, err = os.UserConfigDir()
	default:
		// The XDG specification has a relative path ignored.
		if base = os.Getenv("XDG_STATE_HOME"); !filepath.IsAbs(base) {
			base, err = os.UserHomeDir()
			base = filepath.Join(base, ".local", "state")
		}
	}
	if err != nil {
		return "", &Error{Kind: ErrInput, Detail: "there is no folder for credentials", Err: err}
	}
	return filepath.Join(base, "mcp-bridge", "auth"), nil
}

// Open returns the Store of a folder. It makes what is missing of the folder,
// and checks that nobody else can read what is in it. There is nothing to close.
//
// With a Keyring it asks for the key, and makes one if the keyring has none. A
// keyring may ask the user to unlock it: Open waits for it no longer than 45 seconds and ctx, and returns
// [ErrNoKeyring] then. On Linux the question ends with that; elsewhere it goes on in a goroutine that nobody can end.
func Open(ctx context.Context, o Options) (*Store, error) {
	dir := o.Dir
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &Error{Kind: ErrInput, Path: o.Dir, Err: err}
	}
	s := &Store{dir: dir, now: time.Now}
	for _, kind := range []string{credentialFolder, clientFolder, metadataFolder} {
		if err := s.makeFolders(kind); err != nil {
			return nil, err
		}
	}
	if o.Keyring != nil {
		if s.sealer, err = s.newKeyringSealer(ctx, o.Keyring); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Dir returns the folder.
func (s *Store) Dir() string { return s.dir }

// String returns the folder, and whether its files are encrypted.
func (s *Store) String() string {
	if s.sealer != nil {
		return "encrypted token store " + s.dir
	}
	return "token store " + s.dir
}

// GoString returns what String returns.
func (s *Store) GoString() string { return s.String() }

// The folders of the store. layoutFolder names the version of what is in it.
const (
	layoutFolder     = "v1"     // the folder in Store.dir with all others; it names the version of the layout
	credentialFolder = "cred"   // the subfolder of credentials and sign-ins
	clientFolder     = "client" // the subfolder of registrations
	metadataFolder   = "meta"   // the subfolder of Metadata
)

// filePath returns the path of the file with this name in the subfolder kind ("": beside the subfolders).
func (s *Store) filePath(kind, name string) string {
	return filepath.Join(s.dir, layoutFolder, kind, name)
}

// makeFolders makes the store's folders down to the subfolder kind, and checks that nobody else has a right
// to them.
func (s *Store) makeFolders(kind string) error {
	if err := os.MkdirAll(filepath.Dir(s.dir), 0o700); err != nil {
		return newSystemError(filepath.Dir(s.dir), err)
	}
	for _, dir := range s.folderPaths(kind) {
		if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
			if _, missing := os.Lstat(dir); missing != nil {
				return newSystemError(dir, err)
			} // else it is there, and may not be made: on a read-only disk
		}
		if err := checkFolder(dir); err != nil {
			return err
		}
	}
	return nil
}

// checkFolders checks the folders that makeFolders makes, and makes none. ok is false if one is missing, or
// with an error.
func (s *Store) checkFolders(kind string) (ok bool, err error) {
	for _, dir := range s.folderPaths(kind) {
		if err := checkFolder(dir); os.IsNotExist(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// folderPaths returns the paths of the store's folder, of layoutFolder in it, and of the subfolder kind in
// that.
func (s *Store) folderPaths(kind string) []string {
	return []string{s.dir, filepath.Join(s.dir, layoutFolder), filepath.Join(s.dir, layoutFolder, kind)}
}

// checkFolder returns an error if dir is no folder, or others than this user have a right to it (ErrUnsafe);
// if it is missing, the system's error (os.IsNotExist).
func checkFolder(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case os.IsNotExist(err):
		return err
	case err != nil:
		return newReadError(dir, err)
	case !info.IsDir():
		detail := "it is no folder"
		if info.Mode()&(os.ModeSymlink|os.ModeIrregular) != 0 {
			detail = "it is a link"
		}
		return &Error{Kind: ErrUnsafe, Path: dir, Detail: detail}
	}
	return checkOnlyOursAccess(dir, info)
}
