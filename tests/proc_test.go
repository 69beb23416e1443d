package tests

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A proc is a program with which a test speaks in lines, and the test that it
// fails.
type proc struct {
	*harness.Proc
	t      testing.TB
	stdout *bufio.Reader
}

// start runs argv with extra environment variables.
func start(t testing.TB, env []string, argv ...string) *proc {
	t.Helper()
	return startWith(t, harness.Options{Env: env}, argv...)
}

func startWith(t testing.TB, o harness.Options, argv ...string) *proc {
	t.Helper()
	p := &proc{Proc: harness.Start(t, o, argv...), t: t}
	if p.Stdout != nil {
		p.stdout = bufio.NewReaderSize(p.Stdout, 1<<16)
	}
	return p
}

// waitLog waits until stderr matches re and returns the submatches.
func (p *proc) waitLog(re *regexp.Regexp) []string {
	p.t.Helper()
	return p.WaitLog(p.t, re)
}

// wait returns the exit status, -1 for a signal.
func (p *proc) wait() int {
	p.t.Helper()
	return p.Wait(p.t)
}

func (p *proc) signal(sig os.Signal) {
	p.t.Helper()
	p.Signal(p.t, sig)
}

// stop ends the program the polite way, then by force.
func (p *proc) stop() { p.Stop(p.t) }

// send writes one line to stdin.
func (p *proc) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Stdin, line+"\n"); err != nil {
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
	case <-time.After(harness.Patience):
		return "", errors.New("timeout")
	}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
