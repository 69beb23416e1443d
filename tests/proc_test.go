package tests

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A proc is a program that a test started. Its stderr is kept; the test ends
// it at the latest when it ends itself.
type proc struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	done   chan struct{} // closed when the process has been reaped

	mu      sync.Mutex
	stderr  bytes.Buffer
	changed chan struct{} // closed and replaced when stderr grows
}

// start runs argv with extra environment variables.
func start(t testing.TB, env []string, argv ...string) *proc {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	p := startTo(t, w, env, argv...)
	p.stdout = bufio.NewReaderSize(r, 1<<16)
	return p
}

// startTo is start with a stdout that the caller reads. It closes stdout on
// our side.
func startTo(t testing.TB, stdout *os.File, env []string, argv ...string) *proc {
	t.Helper()
	p := &proc{t: t, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = writerFunc(p.note)
	// A process that the bridge leaves behind must not keep Wait from ending.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop()
		if out := p.log(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") || t.Failed() {
			if !t.Failed() {
				t.Error("the program reported a race or a panic")
			}
			t.Logf("stderr of %s:\n%s", argv, tail(out, 8<<10))
		}
	})
	return p
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func (p *proc) note(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stderr.Write(b)
	close(p.changed)
	p.changed = make(chan struct{})
}

// log is what the program wrote to stderr so far.
func (p *proc) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// waitLog waits until stderr matches re and returns the submatches.
func (p *proc) waitLog(re *regexp.Regexp) []string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		p.mu.Lock()
		m, changed := re.FindStringSubmatch(p.stderr.String()), p.changed
		p.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-changed:
		case <-p.done:
			if m := re.FindStringSubmatch(p.log()); m != nil {
				return m
			}
			p.t.Fatalf("the program ended with status %d before it wrote %q", p.cmd.ProcessState.ExitCode(), re)
		case <-timeout:
			p.t.Fatalf("stderr never matched %q", re)
		}
	}
}

// wait returns the exit status, -1 for a signal.
func (p *proc) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatal("the program did not end")
		return 0
	}
}

func (p *proc) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// stop ends the program the polite way, then by force.
func (p *proc) stop() {
	p.stdin.Close()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Errorf("%s ignored SIGTERM for %v", p.cmd.Args, patience)
		p.cmd.Process.Kill()
		<-p.done
	}
}

// send writes one line to stdin.
func (p *proc) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("writing to the program: %v", err)
	}
}

// line reads one line from stdout, without its newline.
func (p *proc) line() string {
	p.t.Helper()
	line, err := p.readLine()
	if err != nil {
		p.t.Fatalf("reading from the program: %v", err)
	}
	return line
}

func (p *proc) readLine() (string, error) {
	type res struct {
		line string
		err  error
	}
	c := make(chan res, 1)
	go func() {
		line, err := p.stdout.ReadString('\n')
		c <- res{strings.TrimSuffix(line, "\n"), err}
	}()
	select {
	case r := <-c:
		return r.line, r.err
	case <-time.After(patience):
		return "", errors.New("timeout")
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
