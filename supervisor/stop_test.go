//go:build unix

package supervisor

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// ST7: stdin closed, then SIGTERM, then SIGKILL, each only if needed; the
// child itself tells what it saw.
func TestStopOrder(t *testing.T) {
	for _, c := range []struct{ exitsAt, saw, exit string }{
		{"EOF", "EOF", "exit status 7"},
		{"TERM", "EOF|TERM", "exit status 7"},
		{"nothing", "EOF|TERM", "killed by signal SIGKILL"},
	} {
		t.Run(c.exitsAt, func(t *testing.T) {
			t.Parallel()
			s := self("log", c.exitsAt)
			s.Stop = StopWaits{Stdin: time.Second, Term: time.Second}
			if c.exitsAt == "EOF" {
				s.Stop = StopWaits{}
			}
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
		})
	}
}

func TestStopTableOrder(t *testing.T) {
	p := &Process{child: &child{}}
	var names []string
	for _, step := range p.stopTable() {
		names = append(names, step.name)
	}
	if got := strings.Join(names, ", "); got != "close stdin, terminate, kill" {
		t.Errorf("steps: %s", got)
	}
}

// ST7: the whole group gets the signals, also when the child itself went at
// once. The shell ends at EOF; what it leaves behind ignores SIGTERM.
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

// A group that ends by itself in its own time, after its leader, is not
// signalled: it says so.
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
