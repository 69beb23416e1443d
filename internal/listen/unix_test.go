//go:build unix

package listen

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func lstat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	bridgetest.Must(t, err)
	return info
}

func umask(t *testing.T, mask int) {
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

func TestUnixMode(t *testing.T) {
	tests := []struct {
		umask      int
		mode, want fs.FileMode
	}{
		{0o022, 0, 0o600},
		{0, 0, 0o600},
		{0o077, 0o660, 0o660},
		{0o777, 0o666, 0o666},
		{0, 0o620, 0o620},
	}
	for _, tt := range tests {
		umask(t, tt.umask)
		path := socketPath(t)
		mustOpen(t, Options{Addrs: []string{"unix:" + path}, UnixMode: tt.mode})
		if info := lstat(t, path); info.Mode() != fs.ModeSocket|tt.want {
			t.Errorf("umask %o, mode %o: %v", tt.umask, tt.mode, info.Mode())
		}
	}
	fails(t, Options{Addrs: []string{"unix:" + socketPath(t)}, UnixMode: 0o444}, true, "444 is no mode")
	fails(t, Options{Addrs: []string{"unix:" + socketPath(t)}, UnixMode: fs.ModeSetuid | 0o600}, true, "is no mode")
}

// TestUnixModeFromTheStart: there is no moment at which others could connect.
func TestUnixModeFromTheStart(t *testing.T) {
	umask(t, 0)
	path := socketPath(t)
	l, err := listenWithMode(path, 0o600)
	bridgetest.Must(t, err)
	defer l.Close()
	if info := lstat(t, path); info.Mode().Perm() != 0o600 {
		t.Errorf("bound with mode %o", info.Mode().Perm())
	}
}

// leave makes a socket that nobody listens on.
func leave(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	bridgetest.Must(t, err)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	return lstat(t, path)
}

func TestUnixStale(t *testing.T) {
	path := socketPath(t)
	leave(t, path)
	ls := mustOpen(t, Options{Addrs: []string{"unix:" + path}})
	conn, err := net.Dial("unix", path)
	bridgetest.Must(t, err)
	_ = conn.Close()
	_ = ls.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close has left the socket: %v", err)
	}
}

// TestUnixNotOurs: what is not a socket that was left behind stays as it is.
func TestUnixNotOurs(t *testing.T) {
	dir := shortDir(t)
	file, link, live, gram := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "live"), filepath.Join(dir, "gram")
	bridgetest.Must(t, os.WriteFile(file, []byte("data"), 0o600))
	leave(t, filepath.Join(dir, "stale"))
	bridgetest.Must(t, os.Symlink("stale", link))
	mustOpen(t, Options{Addrs: []string{"unix:" + live}})
	g, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: gram, Net: "unixgram"})
	bridgetest.Must(t, err)
	defer g.Close()
	for path, says := range map[string]string{
		file: "no socket", dir: "no socket", link: "no socket",
		live: "stop the other program", gram: "cannot be told",
	} {
		before := lstat(t, path)
		fails(t, Options{Addrs: []string{"unix:" + path}}, false, "listening on unix:"+path, says)
		if !os.SameFile(before, lstat(t, path)) {
			t.Errorf("%s is another one now", path)
		}
	}
	if data, _ := os.ReadFile(file); string(data) != "data" {
		t.Errorf("the file holds %q", data)
	}
}

// TestUnixCloseLeavesOthers: a socket that somebody has put in the place of
// ours is not removed.
func TestUnixCloseLeavesOthers(t *testing.T) {
	path := socketPath(t)
	ls := mustOpen(t, Options{Addrs: []string{"unix:" + path}})
	bridgetest.Must(t, os.Rename(path, path+".old"))
	other := mustOpen(t, Options{Addrs: []string{"unix:" + path}})
	_ = ls.Close()
	conn, err := net.Dial("unix", path)
	bridgetest.Must(t, err)
	_ = conn.Close()
	_ = other.Close()
}

func TestUnixPath(t *testing.T) {
	dir := shortDir(t)
	longest := filepath.Join(dir, strings.Repeat("x", maxPathLength()-len(dir)-1))
	mustOpen(t, Options{Addrs: []string{"unix:" + longest}}) // what we allow works
	fails(t, Options{Addrs: []string{"unix:" + longest + "x"}}, true, "bytes here", "shorter")
	fails(t, Options{Addrs: []string{"unix:"}}, true, "write unix:PATH")
	fails(t, Options{Addrs: []string{"unix:@x"}}, true, "abstract")
	fails(t, Options{Addrs: []string{"unix:a\x00b"}}, true, "zero byte")
	fails(t, Options{Addrs: []string{"unix:" + filepath.Join(dir, "no", "s")}}, false, "make the directory")
	t.Chdir(dir)
	ls := mustOpen(t, Options{Addrs: []string{"unix:relative"}})
	if ls[0].URL() != "unix:relative" {
		t.Errorf("URL %s", ls[0].URL())
	}
}

// TestUnixAtOnce: of those that start at the same time, with a stale socket in
// the way, exactly one gets the name, and keeps it.
func TestUnixAtOnce(t *testing.T) {
	path := socketPath(t)
	for range 20 {
		leave(t, path)
		var wg sync.WaitGroup
		opened := make(chan Listeners, 8)
		for range cap(opened) {
			wg.Go(func() {
				ls, err := Open(Options{Addrs: []string{"unix:" + path}})
				if err == nil {
					opened <- ls
				} else if !errors.Is(err, syscall.EADDRINUSE) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(opened) != 1 {
			t.Fatalf("%d have the socket", len(opened))
		}
		conn, err := net.Dial("unix", path)
		bridgetest.Must(t, err)
		_ = conn.Close()
		_ = (<-opened).Close()
	}
}

// TestUnixLocked: a lock that anybody who may read the directory can hold does not keep a bridge from
// listening; the log says so.
func TestUnixLocked(t *testing.T) {
	path := socketPath(t)
	d, err := os.Open(filepath.Dir(path))
	bridgetest.Must(t, err)
	defer d.Close()
	bridgetest.Must(t, syscall.Flock(int(d.Fd()), syscall.LOCK_SH))
	leave(t, path)
	j, log := newJournal()
	mustOpen(t, Options{Addrs: []string{"unix:" + path}, Logger: log})
	if !strings.Contains(j.String(), "[WARN]") || !strings.Contains(j.String(), filepath.Dir(path)) {
		t.Errorf("the log has no warning: %q", j.String())
	}
	conn, err := net.Dial("unix", path)
	bridgetest.Must(t, err)
	_ = conn.Close()
}
