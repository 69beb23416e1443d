package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// defaultUnixMode is the mode of a Unix socket where Options.UnixMode is 0: only this user may connect.
const defaultUnixMode fs.FileMode = 0o600

// probeTimeout is how long an existing socket at the path may take to accept or refuse a
// connection.
const probeTimeout = 2 * time.Second

// maxPathLength is how many bytes the path of a Unix socket may have: the size of
// sun_path without the final zero byte.
func maxPathLength() int {
	if runtime.GOOS == "linux" || runtime.GOOS == "windows" {
		return 107
	}
	return 103 // macOS and the BSDs
}

// openUnix opens the Unix socket at path, with the mode of o. It removes a socket that is there already if nobody listens on it.
func openUnix(path string, o Options) (*Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	mode := o.UnixMode
	switch {
	case mode == 0:
		mode = defaultUnixMode
	case mode != mode.Perm() || mode&0o222 == 0:
		return nil, optionf("%o is no mode of a socket", uint32(mode))
	case runtime.GOOS == "windows":
		o.Logger.Warn("Windows has no modes: who may connect to the socket is what the permissions of its directory say", "socket", path)
	}
	unlock, err := lockDir(filepath.Dir(path), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("listening on unix:%s: %w", path, err)
	}
	defer unlock()
	if err := removeStaleSocket(path); err != nil {
		return nil, fmt.Errorf("listening on unix:%s: %w", path, err)
	}
	l, err := listenWithMode(path, mode)
	if err != nil {
		return nil, fmt.Errorf("listening on unix:%s: %w", path, explainUnixErr(err))
	}
	l.SetUnlinkOnClose(false) // Close would also remove another file that has the name by then
	file := &socketFile{path: path}
	file.info, err = os.Lstat(path)
	if err == nil && file.info.Mode().Perm() != mode && runtime.GOOS != "windows" {
		err = os.Chmod(path, mode) // sets the bits that the umask has cleared
	}
	if err != nil {
		_ = l.Close()
		file.remove()
		return nil, fmt.Errorf("listening on unix:%s: %w", path, err)
	}
	return &Listener{Listener: l, socketFile: file}, nil
}

// checkPath returns an *OptionError if path cannot be that of a Unix socket, or is an abstract one.
func checkPath(path string) error {
	switch limit := maxPathLength(); {
	case path == "":
		return optionf("the path of the Unix socket is missing: write unix:PATH")
	case strings.HasPrefix(path, "@"):
		return optionf("unix:%s: an abstract socket has no mode, and every user of this machine could connect; write a path", path)
	case strings.IndexByte(path, 0) >= 0:
		return optionf("the path of a Unix socket cannot have a zero byte")
	case len(path) > limit:
		return optionf("unix:%s: the path of a Unix socket may have %d bytes here, and this one has %d; choose a shorter one, or a relative one", path, limit, len(path))
	}
	return nil
}

// explainUnixErr returns the error of making a Unix socket. It says what to do, without the names of system calls, where something is at the
// path, there is no directory, or this user may make no file in it; another error is returned as it is.
func explainUnixErr(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: something has made the file just now", syscall.EADDRINUSE)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: make the directory first", syscall.ENOENT)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: this user may make no file there", syscall.EACCES)
	}
	return err
}

// removeStaleSocket removes the socket at path if no process listens on it any more. Any other file at path stays, and is an error; no file is
// none.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return explainUnixErr(err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("there is something with this name that is no socket: %w; remove it, or choose another path", fs.ErrExist)
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%w: stop the other program, or choose another path", syscall.EADDRINUSE)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !isRefused(err):
		return fmt.Errorf("there is a socket, and whether somebody listens on it cannot be told: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the socket that nobody listens on any more: %w", err)
	}
	return nil
}

// wsaeconnrefused is what Windows calls ECONNREFUSED.
const wsaeconnrefused = syscall.Errno(10061)

// isRefused reports whether err says that nobody listens on a socket.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || runtime.GOOS == "windows" && errors.Is(err, wsaeconnrefused)
}

// A socketFile is the file of a Unix socket that Open has made. Its methods do nothing for
// nil.
type socketFile struct {
	path string      // the path of the file
	info fs.FileInfo // tells the file from another one that has the path later; nil: not known
}

// remove removes the file, unless there is another file at its path by now.
func (f *socketFile) remove() {
	if f == nil {
		return
	}
	if now, err := os.Lstat(f.path); err == nil && (f.info == nil || os.SameFile(f.info, now)) {
		_ = os.Remove(f.path)
	}
}
