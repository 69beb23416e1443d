package harness

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Proc is a program that a test started. Its stderr is kept.
type Proc struct {
	Cmd    *exec.Cmd       // the command that was started
	Stdin  *os.File        // our end of the pipe to the program's stdin; nil with Options.NullStdio
	Stdout *os.File        // our end of the pipe from the program's stdout; nil with Options.NullStdio or Options.Stdout
	Done   <-chan struct{} // closed when the process has been reaped

	quiet bool // only watched has asked for the levels debug and trace: Log leaves their lines out

	mu      sync.Mutex    // guards stderr and changed
	stderr  bytes.Buffer  // what the program has written to its standard error so far
	changed chan struct{} // closed and replaced when stderr grows
}

// Options say more about a program that is started. The zero value works.
type Options struct {
	Env       []string   // variables (NAME=VALUE) besides the tests' own environment
	Dir       string     // where it runs; "" is where the tests do
	Files     []*os.File // become the program's file descriptors from 3 on
	Stdout    *os.File   // becomes the program's stdout; Start closes it on our side. nil: a pipe, of which Proc.Stdout is our end
	NullStdio bool       // the program's stdin is empty, and its stdout is thrown away
	// Owner is the test that the program belongs to, where that is not the one that starts it:
	// the program is stopped when Owner ends.
	Owner testing.TB
	// Check looks at all that the program has logged (Proc.Log), when it has ended. t is its owner. nil: nobody looks.
	Check func(t testing.TB, log string)
}

// Start runs argv. The program is stopped when its owner ends, and a race or a panic that it has
// reported fails the owner. A test that has failed shows the end of the log. If the program cannot
// be started, t ends.
func Start(t testing.TB, o Options, argv ...string) *Proc {
	t.Helper()
	owner := o.Owner
	if owner == nil {
		owner = t
	}
	done := make(chan struct{})
	quiet := false
	if !strings.HasPrefix(t.Name(), "TestMemory") { // it would take more
		argv, quiet = watched(argv, o.Env)
	}
	givenTo(argv, o.Env)
	p := &Proc{Cmd: exec.Command(argv[0], argv[1:]...), Done: done, quiet: quiet, changed: make(chan struct{})}
	// Without this, a program with the race detector takes a second to end.
	p.Cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=20"), o.Env...)
	p.Cmd.Dir, p.Cmd.ExtraFiles = o.Dir, o.Files
	p.Cmd.Stderr = stderr{p}
	// A process that the bridge leaves behind must not keep Wait from ending.
	p.Cmd.WaitDelay = time.Second
	theirs, err := p.pipes(o)
	if err == nil {
		err = p.Cmd.Start()
	}
	closeAll(theirs...)
	if err != nil {
		closeAll(p.Stdin, p.Stdout)
		t.Fatal(err)
	}
	go func() {
		p.Cmd.Wait()
		close(done)
	}()
	owner.Cleanup(func() {
		p.Stop(owner)
		closeAll(p.Stdout)
		p.inspect(owner, o.Check)
	})
	return p
}

// pipes makes the program's stdin and stdout, and returns the ends that are the program's, also with an error: the caller closes them.
func (p *Proc) pipes(o Options) (theirs []*os.File, err error) {
	if o.NullStdio {
		return nil, nil
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return []*os.File{o.Stdout}, err
	}
	p.Cmd.Stdin, p.Stdin = in, stdin
	out := o.Stdout
	if out == nil {
		p.Stdout, out, err = os.Pipe()
	}
	p.Cmd.Stdout = out
	return []*os.File{in, out}, err
}

// closeAll closes those of the files that there are.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// report matches the beginning of what a program says of a race or a panic.
var report = regexp.MustCompile(`DATA RACE|panic:`)

// inspect looks at what the program, which has ended, has logged: it keeps that and the files that the program has written, to be searched
// for secrets, fails t if there was a race or a panic, and calls check, if that is not nil.
func (p *Proc) inspect(t testing.TB, check func(testing.TB, string)) {
	p.mu.Lock()
	all := p.stderr.String()
	p.mu.Unlock()
	Keep(fmt.Sprintf("stderr of %q", p.Cmd.Args), all)
	keepFiles(p.Cmd.Args)
	if at := report.FindStringIndex(all); at != nil {
		t.Errorf("%q reported a race or a panic:\n%s", p.Cmd.Args, all[at[0]:min(len(all), at[0]+8<<10)])
	}
	log := p.Log()
	if check != nil {
		check(t, log)
	}
	if t.Failed() && log != "" {
		t.Logf("stderr of %q:\n%s", p.Cmd.Args, log[max(0, len(log)-8<<10):])
	}
}

// watched returns a command line with which a bridge that has to do with credentials logs all that it can, and writes a trace;
// quiet: that level was not asked for.
func watched(argv, env []string) (with []string, quiet bool) {
	if len(argv) < 2 || argv[1] != "serve" && argv[1] != "connect" || !hasCredentials(argv, env) {
		return argv, false
	}
	with = slices.Clone(argv)
	if keptIn != "" && len(flagValues(argv, []string{"--trace", "--record"})) == 0 {
		with = slices.Insert(with, 2, "--trace", filepath.Join(keptIn, rand.Text()))
	}
	if len(flagValues(argv, []string{"--log-level"})) > 0 {
		return with, false
	}
	return slices.Insert(with, 2, "--log-level", "trace"), true
}

// stderr takes what the program writes to its standard error.
type stderr struct {
	p *Proc // the program
}

// Write implements io.Writer: it keeps what the program has written, and wakes those who wait for more.
func (s stderr) Write(b []byte) (int, error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	return p.stderr.Write(b)
}

// logLine matches the beginning of a line of a log; its level is the first group (JSON) or the second (text).
var logLine = regexp.MustCompile(`^(?:\{.{0,60}"@level":"([a-z]+)"|\d{4}-\d\d-\d\dT\S+ \[([A-Z]+)\])`)

// asked returns a text, a log, without the lines of the levels debug and trace and the indented ones that belong to them, and without the
// beginning of a line that has not come whole yet.
func asked(text string) string {
	var b strings.Builder
	skips := false
	for line := range strings.Lines(text) {
		if m := logLine.FindStringSubmatch(line); m != nil {
			level := strings.ToLower(m[1] + m[2])
			skips = level == "debug" || level == "trace"
		} else if !strings.HasPrefix(line, "  ") {
			skips = false
		}
		if !skips && strings.HasSuffix(line, "\n") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Log returns what the program has written to stderr so far, but for the levels that the test has not asked for.
func (p *Proc) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log()
}

// log returns what Log returns. It is called with mu held.
func (p *Proc) log() string {
	if p.quiet {
		return asked(p.stderr.String())
	}
	return p.stderr.String()
}

// WaitLog waits until the Log matches re, and returns the match and its submatches. If the program ends before, or Patience has passed,
// t ends.
func (p *Proc) WaitLog(t testing.TB, re *regexp.Regexp) []string {
	t.Helper()
	timeout := time.After(Patience)
	for {
		p.mu.Lock()
		m, changed := re.FindStringSubmatch(p.log()), p.changed
		p.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-changed:
		case <-p.Done:
			if m := re.FindStringSubmatch(p.Log()); m != nil {
				return m
			}
			t.Fatalf("%q ended with status %d before it wrote %q:\n%s", p.Cmd.Args, p.Cmd.ProcessState.ExitCode(), re, p.Log())
		case <-timeout:
			t.Fatalf("stderr never matched %q", re)
		}
	}
}

// Wait waits until the program has ended, and returns the exit status; -1: a signal has ended it. If it has not ended after Patience,
// t ends.
func (p *Proc) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.Done:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		t.Fatalf("%q did not end", p.Cmd.Args)
		return 0
	}
}

// Signal sends a signal to the program, which may have ended.
func (p *Proc) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Stop ends the program: by the end of its stdin and SIGTERM or, if it runs on for Patience, by force, which is an error of t. It returns when
// the program has ended.
func (p *Proc) Stop(t testing.TB) {
	closeAll(p.Stdin)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
	case <-time.After(Patience):
		t.Errorf("%q ignored SIGTERM for %v", p.Cmd.Args, Patience)
		p.Cmd.Process.Kill()
		<-p.Done
	}
}
