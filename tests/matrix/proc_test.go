package matrix

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A proc is a program that a test started. Its stderr is kept.
type proc struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been reaped

	mu      sync.Mutex
	stderr  bytes.Buffer
	changed chan struct{} // closed and replaced when stderr grows
}

// start runs argv. With pipes, the caller has the ends of its stdin and stdout.
// The program is stopped when pt ends, a test around t or t itself, and a race
// or a panic in it fails pt.
func start(pt, t testing.TB, stdin, stdout *os.File, argv ...string) *proc {
	t.Helper()
	p := &proc{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // it would be a second
	p.cmd.Stderr = p
	// A process that the bridge leaves behind must not keep Wait from ending.
	p.cmd.WaitDelay = time.Second
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	pt.Cleanup(func() {
		p.stop(pt)
		out := p.log()
		if strings.Contains(out, "DATA RACE") || strings.Contains(out, "panic:") {
			pt.Errorf("%s reported a race or a panic", argv[:2])
		}
		if strings.Contains(out, "9007199254740993") || strings.Contains(out, "zwj") {
			pt.Errorf("the log of %s quotes messages", argv[:2])
		}
		if pt.Failed() && out != "" {
			pt.Logf("stderr of %q:\n%s", argv, out[max(0, len(out)-8<<10):])
		}
	})
	return p
}

// Write takes what the program writes to stderr.
func (p *proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stderr.Write(b)
	close(p.changed)
	p.changed = make(chan struct{})
	return len(b), nil
}

// log is what the program wrote to stderr so far.
func (p *proc) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// waitLog waits until stderr matches re and returns the submatches.
func (p *proc) waitLog(t testing.TB, re *regexp.Regexp) []string {
	t.Helper()
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
			t.Fatalf("%q ended with status %d before it wrote %q:\n%s", p.cmd.Args, p.cmd.ProcessState.ExitCode(), re, p.log())
		case <-timeout:
			t.Fatalf("stderr never matched %q", re)
		}
	}
}

// wait returns the exit status, -1 for a signal.
func (p *proc) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%q did not end", p.cmd.Args)
		return 0
	}
}

// stop ends the program the polite way, then by force.
func (p *proc) stop(t testing.TB) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%q ignored SIGTERM for %v", p.cmd.Args, patience)
		p.cmd.Process.Kill()
		<-p.done
	}
}
