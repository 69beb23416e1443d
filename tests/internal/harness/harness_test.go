package harness

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestMain lets this program be the one that the tests start.
func TestMain(m *testing.M) {
	switch os.Getenv("HARNESS_ROLE") {
	case "waits":
		os.Stderr.WriteString("ready 7\n")
		os.Stdin.Read(make([]byte, 1)) // until its end
		os.Exit(3)
	case "panics":
		panic("at the disco")
	}
	Main(m)
}

// recorder is a test that notes what it is told, in place of failing.
type recorder struct {
	testing.TB
	errors []string
	ends   []func()
}

func (r *recorder) Errorf(format string, args ...any) { r.errors = append(r.errors, format) }
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Failed() bool                      { return len(r.errors) > 0 }
func (r *recorder) Cleanup(f func())                  { r.ends = append(r.ends, f) }

// TestProc: a program can be heard and waited for, and ends with the test that owns it.
func TestProc(t *testing.T) {
	t.Parallel()
	owner := &recorder{TB: t}
	p := Start(t, Options{Env: []string{"HARNESS_ROLE=waits"}, Owner: owner}, os.Args[0])
	if m := p.WaitLog(t, regexp.MustCompile(`ready (\d)`)); m[1] != "7" {
		t.Errorf("WaitLog: %q", m)
	}
	p.Stdin.Close()
	if status := p.Wait(t); status != 3 {
		t.Errorf("status %d, want 3", status)
	}
	q := Start(t, Options{Env: []string{"HARNESS_ROLE=waits"}, Owner: owner}, os.Args[0])
	for _, end := range owner.ends {
		end()
	}
	if Alive(q.Cmd.Process.Pid) {
		t.Error("the program outlives its test")
	}
	if owner.Failed() {
		t.Errorf("the owner failed: %q", owner.errors)
	}
}

// TestProcPanics: a panic in a program fails the test that owns it.
func TestProcPanics(t *testing.T) {
	t.Parallel()
	owner := &recorder{TB: t}
	p := Start(t, Options{Env: []string{"HARNESS_ROLE=panics"}, Owner: owner, NoPipes: true}, os.Args[0])
	p.Wait(t)
	owner.ends[0]()
	if !strings.Contains(strings.Join(owner.errors, ""), "panic") {
		t.Errorf("the owner has heard of no panic: %q\n%s", owner.errors, p.Log())
	}
}
