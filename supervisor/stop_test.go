//go:build unix

package supervisor

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// ST7: stdin is closed, then SIGTERM is sent, then SIGKILL, each only if needed. The child
// itself prints what has happened to it.
func TestStopOrder(t *testing.T) {
	for _, c := range []struct{ exitsAt, saw, exit, steps string }{
		{"EOF", "EOF", "exit status 7", "close stdin"},
		{"TERM", "EOF|TERM", "exit status 7", "close stdin, terminate"},
		{"nothing", "EOF|TERM", "killed by signal SIGKILL", "close stdin, terminate, kill"},
	} {
		t.Run(c.exitsAt, func(t *testing.T) {
			t.Parallel()
			s := self("log", c.exitsAt)
			s.Stop = StopWaits{Stdin: time.Second, Term: time.Second}
			if c.exitsAt == "EOF" {
				s.Stop = StopWaits{}
			}
			var steps, exit []string
			s.OnStop = func(step string) { steps = append(steps, step) }
			s.OnExit = func(err error, asked bool) { exit = append(exit, fmt.Sprint(err, ", asked: ", asked)) }
			p := mustStart(t, s)
			if got := readLine(t, p.Stdout()); got != "ready" {
				t.Fatal(got)
			}
			mustStop(t, p)
			saw := strings.ReplaceAll(strings.TrimSpace(readAll(t, p.Stdout())), "\n", "|")
			if saw != c.saw {
				t.Errorf("the child saw %s, want %s", saw, c.saw)
			}
			if err := p.ExitError(); err == nil || err.Error() != c.exit {
				t.Errorf("ExitError: %v, want %s", err, c.exit)
			}
			if got := strings.Join(steps, ", "); got != c.steps {
				t.Errorf("OnStop was told of %s, want %s", got, c.steps)
			}
			if got := strings.Join(exit, "; "); got != c.exit+", asked: true" {
				t.Errorf("OnExit was told of %s, want %s", got, c.exit)
			}
		})
	}
}

func TestStopTableOrder(t *testing.T) {
	p := &Process{child: &child{}}
	var names []string
	for _, step := range p.stopSteps() {
		names = append(names, step.name)
	}
	if got := strings.Join(names, ", "); got != "close stdin, terminate, kill" {
		t.Errorf("steps: %s", got)
	}
}

// ST7: the whole group gets the signals, also when the child itself has ended at once. The
// shell ends at EOF; the process that it leaves behind ignores SIGTERM.
func TestStopEndsTheGroup(t *testing.T) {
	for _, stays := range []string{"sleep 1000", "trap '' TERM; sleep 1000; sleep 1000"} {
		life := newLifeline(t)
		s := sh(`exec 9>"$1"; sh -c "$2" & echo; cat`, life.path, stays)
		s.Stop = short
		p := mustStart(t, s)
		readLine(t, p.Stdout())
		mustStop(t, p)
		if life.held() {
			t.Errorf("%s: outlived Stop", stays)
		}
		if err := p.ExitError(); err != nil {
			t.Errorf("%s: the shell itself: %v, want a clean end at EOF", stays, err)
		}
	}
}

// A group that ends by itself, but later than its leader, gets no signal. The group prints
// the signals that it gets.
func TestStopWaitsForTheGroup(t *testing.T) {
	s := sh(`exec 3<&0; sh -c "trap 'echo TERM' TERM; cat <&3; sleep 0.2; echo ended" & exec cat`)
	p := mustStart(t, s)
	mustStop(t, p)
	if got := readAll(t, p.Stdout()); got != "ended\n" {
		t.Errorf("got %q, want the grandchild to end in peace", got)
	}
}

func TestStopByMany(t *testing.T) {
	p := mustStart(t, sh("cat"))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			mustStop(t, p)
			select {
			case <-p.Done():
			default:
				t.Error("Stop returned before the end")
			}
		})
	}
	wg.Wait()
	mustStop(t, p)
}

func TestStopUnblocksWriter(t *testing.T) {
	s := sh("sleep 1000")
	s.Stop = StopWaits{Stdin: -1}
	p := mustStart(t, s)
	wrote := make(chan error)
	go func() { _, err := p.Stdin().Write(make([]byte, 1<<20)); wrote <- err }()
	mustStop(t, p)
	if err := <-wrote; err == nil {
		t.Error("the write succeeded")
	}
}
