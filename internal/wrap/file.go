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

// maxFileSize is how large a client's configuration file may be, in bytes.
const maxFileSize = 16 << 20

// Client is a desktop client whose configuration is at a known place.
type Client struct {
	ID   string // what --client calls it, such as "claude"
	Name string // its name for people
	File string // the path of its configuration
}

// KnownClients returns the desktop clients that are known, with the paths of their configurations for this user, whether or not there
// are such files.
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

// CommandsOnlyClient returns the name of the client whose configuration a file is, by the name of the file, if that client passes over
// servers with a URL, as it knows only those with a command; "": it is no such file.
func CommandsOnlyClient(file string) string {
	if filepath.Base(file) == "claude_desktop_config.json" {
		return "Claude Desktop"
	}
	return ""
}

// Read returns the text of a client's configuration. A symbolic link, anything else that is no file, and a file of more than maxFileSize are
// errors.
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

// EditFile replaces the text of a client's configuration by what edit makes of it. The old text is kept
// beside it in a file that only its owner may read, whose path is returned; now is in its name. The new text is there as a
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

// checkWritable returns the FileInfo of a file that this user may write, or the error why not. This is asked because replacing the file would
// need no right to write it.
func checkWritable(file string) (fs.FileInfo, error) {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// writeNewFile writes a new file with this mode, for the owner and group of like. It is an error if the file exists. After an error no
// file is left behind.
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

// syncDir writes a directory to the disk, where the system can do that, so that a new name in it outlasts a crash.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
