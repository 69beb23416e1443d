//go:build unix

package supervisor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestTalk(t *testing.T) {
	p := mustStart(t, sh("cat; echo bye"))
	for _, line := range []string{"one", "two"} {
		if _, err := io.WriteString(p.Stdin(), line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := readLine(t, p.Stdout()); got != line {
			t.Fatalf("got %q, want %q", got, line)
		}
	}
	p.Stdin().Close()
	if got := readAll(t, p.Stdout()); got != "bye\n" {
		t.Errorf("after EOF: %q", got)
	}
	<-p.Done()
	if err := p.ExitError(); err != nil {
		t.Errorf("ExitError: %v", err)
	}
}

func TestExitError(t *testing.T) {
	for script, want := range map[string]string{
		"echo one >&2; echo two >&2; exit 3":      "exit status 3",
		"echo one >&2; echo two >&2; kill -9 $$":  "killed by signal SIGKILL",
		"echo one >&2; echo two >&2; kill -15 $$": "killed by signal SIGTERM",
	} {
		p := mustStart(t, sh(script))
		<-p.Done()
		if err := p.ExitError(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
		if tail := strings.Join(p.StderrTail(), "|"); tail != "one|two" {
			t.Errorf("%s: stderr %q when Done is closed, want both lines", script, tail)
		}
	}
}

// Done is closed as soon as a process has crashed, not after a grace. A busy machine may keep one
// process for longer; with a grace the fastest takes that long.
func TestDoneIsPrompt(t *testing.T) {
	const times = 10
	fastest := time.Hour
	for range times {
		p := mustStart(t, sh("exit 1"))
		began := time.Now()
		readAll(t, p.Stdout())
		<-p.Done()
		fastest = min(fastest, time.Since(began))
	}
	if fastest >= outputGrace {
		t.Errorf("the fastest of %d exits took %v", times, fastest)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		bridgetest.Must(t, os.WriteFile(path, []byte(content), mode))
		return path
	}
	noShebang := write("noshebang", "\x00\x01", 0o755)
	for _, c := range []struct {
		name  string
		spec  Spec
		is    error
		want  []string
		later bool // only the system finds it, not Check
	}{
		{"not found", Spec{Path: "no-such-command"}, fs.ErrNotExist, []string{`"no-such-command"`, "PATH", "install"}, false},
		{"arguments in it", Spec{Path: "no-such-command --flag"}, fs.ErrNotExist, []string{`"no-such-command --flag"`, "PATH", "no shell"}, false},
		{"a variable in front", Spec{Path: "FOO=bar"}, fs.ErrNotExist, []string{"--env NAME=VALUE"}, false},
		{"a home folder", Spec{Path: "~/none"}, fs.ErrNotExist, []string{"no shell expands the ~"}, false},
		{"no such path", Spec{Path: dir + "/none"}, fs.ErrNotExist, []string{dir + "/none", "check the path"}, false},
		{"a line in quotes", Spec{Path: dir + "/none -y package"}, fs.ErrNotExist, []string{"without quotes around all of them"}, false},
		{"a line in quotes with a path behind", Spec{Path: "none -y @a/package"}, fs.ErrNotExist, []string{"without quotes around all of them"}, false},
		{"relative path", Spec{Path: "sub/none", Dir: dir}, fs.ErrNotExist, []string{`"sub/none"`, "tried " + filepath.Join(dir, "sub/none")}, false},
		{"not executable", Spec{Path: write("plain", "x", 0o644)}, fs.ErrPermission, []string{"plain", "executable"}, false},
		{"a directory", Spec{Path: dir}, nil, []string{dir}, false},
		{"bad dir", Spec{Path: "/bin/sh", Dir: dir + "/none"}, fs.ErrNotExist, []string{"working directory", dir + "/none"}, false},
		{"dir is a file", Spec{Path: "/bin/sh", Dir: noShebang}, nil, []string{"working directory", "not a directory"}, false},
		{"nothing", Spec{}, nil, []string{"no command"}, false},
		{"no interpreter", Spec{Path: write("script", "#!/no/such\n", 0o755)}, fs.ErrNotExist, []string{"script", "interpreter"}, true},
		{"no program", Spec{Path: noShebang}, nil, []string{"noshebang", "#!/bin/sh"}, true},
	} {
		c.spec.Name = "the-server"
		_, err := Start(context.Background(), c.spec)
		if err == nil {
			t.Errorf("%s: started", c.name)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v is not %v", c.name, err, c.is)
		}
		for _, want := range append(c.want, "the-server") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want it to say %q", c.name, err, want)
			}
		}
		if checked := c.spec.Check(); (checked == nil) != c.later {
			t.Errorf("%s: Check: %v", c.name, checked)
		}
	}
}

// No part of an error has the Path of a server without a name, where people may see another one.
func TestErrorsHaveShownPath(t *testing.T) {
	s := Spec{Path: "no-such-command", ShownPath: "${TOOLS}/server"}
	_, err := Start(t.Context(), s)
	for _, err := range []error{err, s.Check()} {
		if err == nil || strings.Contains(err.Error(), s.Path) || !strings.Contains(err.Error(), s.ShownPath) {
			t.Error(err)
		}
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	bridgetest.Must(t, os.Mkdir("bin", 0o755))
	dir = filepath.Join(dir, "bin")
	bridgetest.Must(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("#!/bin/sh\necho $0 $(pwd)\n"), 0o755))
	for _, c := range []struct {
		name string
		spec Spec
		ok   bool
	}{
		{"in the child's PATH", Spec{Path: "mine", Env: []string{"PATH=/nowhere:" + dir + ":/bin:/usr/bin"}}, true},
		{"not in ours", Spec{Path: "mine"}, false},
		{"ours serves without one", Spec{Path: "sh", Args: []string{"-c", "echo " + dir + "/mine /"}, Env: []string{"A=b"}}, true},
		{"not in the working directory", Spec{Path: "mine", Dir: dir, Env: []string{"PATH=:bin:."}}, false},
		{"relative to Dir", Spec{Path: "./mine", Dir: dir, Env: []string{"PATH=/bin:/usr/bin"}}, true},
	} {
		if err := c.spec.Check(); (err == nil) != c.ok {
			t.Errorf("%s: Check: %v", c.name, err)
		}
		p, err := Start(context.Background(), c.spec)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if p != nil {
			if out := readAll(t, p.Stdout()); !strings.Contains(out, "/mine ") {
				t.Errorf("%s: it ran %q", c.name, out)
			}
			mustStop(t, p)
		}
	}
}

// ST16: the child has the environment it was given and no other.
func TestEnvIsComplete(t *testing.T) {
	t.Setenv("MCP_BRIDGE_SECRET", "secret")
	for _, env := range [][]string{nil, {"A=1"}} {
		p := mustStart(t, Spec{Path: "env", Env: env})
		for line := range strings.Lines(readAll(t, p.Stdout())) {
			if line != "A=1\n" && !strings.HasPrefix(line, markerVar+"=") {
				t.Errorf("Env %q: the child has %q", env, line)
			}
		}
	}
}

func TestStartNotAfterCtxDone(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 { // it must not be a matter of luck
		if _, err := Start(ctx, sh("exit 0")); !errors.Is(err, context.Canceled) {
			t.Errorf("Start: %v", err)
		}
	}
}

func TestCtxBoundsTheStartOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p, err := Start(ctx, sh("cat"))
	bridgetest.Must(t, err)
	defer mustStop(t, p)
	cancel()
	io.WriteString(p.Stdin(), "alive\n")
	if got := readLine(t, p.Stdout()); got != "alive" {
		t.Errorf("got %q", got)
	}
}

// ST6: a child that writes 10 MiB to stderr still answers.
func TestStderrIsDrained(t *testing.T) {
	var lines, bytes int
	s := sh(`yes 0123456789abcde | head -c 10485760 >&2; printf 'long %010000d' 1 >&2; cat`)
	s.Stderr = func(line []byte) { lines++; bytes = max(bytes, len(line)) }
	p := mustStart(t, s)
	io.WriteString(p.Stdin(), "ping\n")
	if got := readLine(t, p.Stdout()); got != "ping" {
		t.Fatalf("got %q", got)
	}
	mustStop(t, p)
	if lines != 10485760/16+1 || bytes != MaxStderrLine {
		t.Errorf("%d lines, the longest of %d bytes", lines, bytes)
	}
}

func TestWriteDeadline(t *testing.T) {
	s := sh("sleep 1000")
	s.Stop.Stdin = -1
	p := mustStart(t, s)
	f := p.Stdin().(*os.File)
	bridgetest.Must(t, f.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := f.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write to a child that does not read: %v", err)
	}
}

// ST7: process exit counts, not the end of a pipe that a grandchild holds.
func TestGrandchildHoldsPipes(t *testing.T) {
	life := newLifeline(t)
	s := sh(`exec 9>"$1"; head -c 50000 /dev/zero; sleep 1000 & exit 4`, life.path)
	s.Stop = StopWaits{Stdin: -1}
	p := mustStart(t, s)
	<-p.Done()
	if err := p.ExitError(); err == nil || err.Error() != "exit status 4" {
		t.Errorf("ExitError: %v", err)
	}
	if !life.held() {
		t.Fatal("the grandchild is gone: nothing is tested")
	}
	// We are slower than any grace here; all that is in the pipe comes nonetheless.
	if n := len(readAll(t, p.Stdout())); n != 50000 {
		t.Errorf("read %d bytes, want 50000", n)
	}
	mustStop(t, p)
	if life.held() {
		t.Error("the grandchild outlived Stop")
	}
}

// A Read that waits when the process exits ends too.
func TestGrandchildHoldsPipesReaderWaits(t *testing.T) {
	s := sh(`cat >/dev/null; sleep 1000 & exit 0`)
	s.Stop = StopWaits{Stdin: -1}
	p := mustStart(t, s)
	read := make(chan string)
	go func() { b, _ := io.ReadAll(p.Stdout()); read <- string(b) }()
	p.Stdin().Close()
	if got := <-read; got != "" {
		t.Errorf("read %q", got)
	}
}

// The reader's own deadline does not end the output, and the output still ends after it.
func TestReadDeadline(t *testing.T) {
	s := sh(`read x; echo one; read x; echo two; sleep 1000 & exit 0`)
	s.Stop = StopWaits{Stdin: -1}
	p := mustStart(t, s)
	out := p.Stdout().(interface {
		io.Reader
		SetReadDeadline(time.Time) error
	})
	b := make([]byte, 10)
	timesOut := func(when string) {
		t.Helper()
		if n, err := out.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: Read: %d, %v", when, n, err)
		}
	}
	set := func(d time.Time) {
		t.Helper()
		bridgetest.Must(t, out.SetReadDeadline(d))
	}
	set(time.Now().Add(-time.Hour))
	timesOut("past")
	set(time.Now().Add(10 * time.Millisecond))
	timesOut("soon")
	set(time.Time{})
	io.WriteString(p.Stdin(), "\n")
	if got := readLine(t, out); got != "one" {
		t.Errorf("got %q", got)
	}
	io.WriteString(p.Stdin(), "\n")
	<-p.Done()
	set(time.Now().Add(-time.Hour))
	timesOut("after exit")
	set(time.Now().Add(time.Hour))
	if got := readAll(t, out); got != "two\n" {
		t.Errorf("got %q", got)
	}
}

// A terminal's read must end like a pipe's: whoever waits for output has to be
// able to give up.
func TestTerminalReadDeadline(t *testing.T) {
	s := sh("cat")
	s.PTY = true
	p := mustStart(t, s)
	out := p.Stdout().(interface {
		io.Reader
		SetReadDeadline(time.Time) error
	})
	bridgetest.Must(t, out.SetReadDeadline(time.Now()))
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read = %v, want a time-out", err)
	}
}

func TestOutputIsReadableAfterStop(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		s := sh("echo first; cat >/dev/null; echo last")
		s.PTY = terminal
		p := mustStart(t, s)
		if got := readLine(t, p.Stdout()); got != "first" {
			t.Fatalf("got %q", got)
		}
		mustStop(t, p)
		if got := readAll(t, p.Stdout()); got != "last\n" {
			t.Errorf("terminal %v: after Stop: %q, want what the child wrote last", terminal, got)
		}
	}
}

func TestTerminal(t *testing.T) {
	s := sh(`test -t 1 && ! test -t 0 && ! test -t 2 && echo only-stdout; printf 'a\tb\r\n'; cat`)
	s.PTY = true
	p := mustStart(t, s)
	if got := readLine(t, p.Stdout()) + "|" + readLine(t, p.Stdout()); got != "only-stdout|a\tb\r" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("é", 500_000)
	go func() {
		io.WriteString(p.Stdin(), long+"\n")
		p.Stdin().Close()
	}()
	if got := readAll(t, p.Stdout()); got != long+"\n" { // once: no echo; and EOF, not EIO
		t.Errorf("got %d bytes, want a line of %d", len(got), len(long)+1)
	}
}

func TestManyAtOnce(t *testing.T) {
	before := bridgetest.FDs() // after a first start, so that epoll and the like are there
	for round := range 2 {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				p, err := Start(context.Background(), sh("cat; sleep 0"))
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(p.Stdin(), "hello\n")
				if got := readLine(t, p.Stdout()); got != "hello" {
					t.Errorf("got %q", got)
				}
				if err := p.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if left := bridgetest.Children(); len(left) > 0 {
			t.Errorf("%d processes left", len(left))
		}
		if fds := bridgetest.FDs(); round > 0 && fds != before {
			t.Errorf("%d descriptors, %d before", fds, before)
		} else {
			before = fds
		}
	}
}
