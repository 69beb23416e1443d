package wrap

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// maxFileSize is how large a configuration may be, in bytes.
const maxFileSize = 16 << 20

// Client is a desktop client whose configuration is at a known place.
type Client struct {
	ID   string // as --client names it
	Name string
	File string
}

// KnownClients returns those that are known, with their files for this user.
func KnownClients() ([]Client, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	config, err := os.UserConfigDir() // ~/.config, ~/Library/Application Support, %AppData%
	if err != nil {
		return nil, err
	}
	return []Client{
		{"claude", "Claude Desktop", filepath.Join(config, "Claude", "claude_desktop_config.json")},
		{"cursor", "Cursor", filepath.Join(home, ".cursor", "mcp.json")},
		{"vscode", "VS Code", filepath.Join(config, "Code", "User", "mcp.json")},
	}, nil
}

// CommandsOnlyClient returns the name of the client whose configuration a file is, if that client knows no server with a URL, and
// passes over those in the file; "" if it is no such file.
func CommandsOnlyClient(file string) string {
	if filepath.Base(file) == "claude_desktop_config.json" {
		return "Claude Desktop"
	}
	return ""
}

// Read returns the text of a configuration.
func Read(file string) ([]byte, error) {
	info, err := os.Lstat(file)
	switch {
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := filepath.EvalSymlinks(file)
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s is a symbolic link: name the file itself, %s", file, to)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", file)
	case info.Size() > maxFileSize:
		return nil, fmt.Errorf("%s has more than %d bytes", file, maxFileSize)
	}
	return os.ReadFile(file)
}

// EditFile replaces the text of a configuration by what edit makes of it. What was there is kept
// beside it in a file that only its owner may read, whose name is returned. The new text is there as a
// whole or not at all, with the mode of the old one, and with its owner and group (Unix): who runs this may be
// another user, with sudo.
func EditFile(file string, now time.Time, edit func(text []byte) ([]byte, error)) (backup string, err error) {
	text, err := Read(file)
	if err != nil {
		return "", err
	}
	changed, err := edit(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	info, err := checkWritable(file)
	if err != nil {
		return "", err
	}
	backup = file + ".bak-" + now.Format("20060102-150405.000")
	if err := writeNewFile(backup, text, info, 0o600); err != nil {
		return "", err
	}
	temporary := backup + ".new"
	if err := writeNewFile(temporary, changed, info, info.Mode().Perm()); err != nil {
		return "", errors.Join(err, os.Remove(backup))
	}
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, text) {
		err = errors.Join(err, os.Remove(temporary), os.Remove(backup))
		return "", errors.Join(fmt.Errorf("%s is being changed by somebody else; try again", file), err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return "", errors.Join(err, os.Remove(temporary), os.Remove(backup))
	}
	syncDir(filepath.Dir(file))
	return backup, nil
}

// checkWritable returns the FileInfo of a file that may be written, or why it may not be. To replace the file would
// need no right to write it.
func checkWritable(file string) (fs.FileInfo, error) {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// writeNewFile writes a file that was not there, for the owner of another one, and leaves none behind that is not complete.
func writeNewFile(name string, text []byte, like fs.FileInfo, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(name)
		}
	}()
	if err = chownLike(f, like); err == nil {
		_, err = f.Write(text)
	}
	if err == nil && runtime.GOOS != "windows" {
		err = f.Chmod(mode) // the umask has no say
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a new name last, where the system can do that.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
