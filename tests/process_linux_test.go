package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A watched process is one that is not our child: its end is seen through a
// pidfd, which a reused pid cannot deceive.
type watched struct{ pid, fd int }

// watch opens pidfds for the processes that a fixture noted in file, when it
// has noted n of them.
func watch(t *testing.T, file string, n int) []watched {
	t.Helper()
	text := waitFile(t, file, func(s string) bool { return strings.Count(s, "\n") >= n })
	var ws []watched
	for line := range strings.Lines(text) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		bridgetest.Must(t, err)
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("pid %d: %v", pid, err)
		}
		t.Cleanup(func() {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			unix.Close(fd)
		})
		ws = append(ws, watched{pid, fd})
	}
	return ws
}

// waitGone waits for the end of every process.
func waitGone(t *testing.T, ws []watched) {
	t.Helper()
	for _, w := range ws {
		poll := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(poll, int(harness.Patience.Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			if n != 1 {
				t.Errorf("process %d is still there (%v)", w.pid, err)
			}
			break
		}
	}
}

// children returns the names of all children of pid, zombies included.
func children(t *testing.T, pid int) []string {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []string
	for _, f := range files {
		data, _ := os.ReadFile(f) // a thread may have ended meanwhile
		for _, child := range strings.Fields(string(data)) {
			name, err := os.ReadFile("/proc/" + child + "/comm")
			if err == nil {
				all = append(all, strings.TrimSpace(string(name)))
			}
		}
	}
	return all
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	bridgetest.Must(t, err)
	return len(entries)
}

// switches counts how often threads of pid have waited for something: while
// that stays as it is, none does anything.
func switches(t *testing.T, pid int) (n int) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		data, _ := os.ReadFile(f) // a thread may have ended meanwhile
		for line := range strings.Lines(string(data)) {
			if count, ok := strings.CutPrefix(line, "voluntary_ctxt_switches:"); ok {
				k, err := strconv.Atoi(strings.TrimSpace(count))
				bridgetest.Must(t, err)
				n += k
			}
		}
	}
	return n
}

// goroutines ends the bridge with SIGQUIT and counts, in the stacks that the
// Go runtime then prints, those of the bridge and of net/http.
func goroutines(s *server) int {
	s.t.Helper()
	s.signal(syscall.SIGQUIT)
	s.wait()
	n := 0
	for stack := range strings.SplitSeq(s.Log(), "\ngoroutine ") {
		if strings.Contains(stack, " [runnable]:\nnet/http.(*Server).Serve.gowrap") {
			continue // a connection that was accepted just now: the client's Transport dials some that it then does not need
		}
		if strings.Contains(stack, "github.com/mcp-bridge/") || strings.Contains(stack, "net/http.") {
			n++
		}
	}
	return n
}

// TestServe500Sessions: 500 sessions, all open at the same time, used and
// deleted, leave no process, no file descriptor and no goroutine.
func TestServe500Sessions(t *testing.T) {
	t.Parallel()
	run := func(n, most int) (files, gos int) {
		s := serveArgv(t, []string{"GOTRACEBACK=all"}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--max-sessions", "1000", "--", childBin)
		s.useSessions(n)
		s.client.CloseIdleConnections()
		pid := s.Cmd.Process.Pid
		harness.WaitUntil(t, "the children to be reaped", func() bool { return !slices.Contains(children(t, pid), filepath.Base(childBin)) })
		harness.WaitUntil(t, "open files to be closed", func() bool {
			files = openFiles(t, pid)
			return connections(t, pid) == 0 && files <= most
		})
		last, same := 0, 0
		harness.WaitUntil(t, "the bridge to have nothing to do", func() bool { // the last sessions may be on their way out
			now := switches(t, pid)
			if same++; now != last {
				last, same = now, 0
			}
			return same == 10
		})
		if kids := children(t, pid); len(kids) > 1 {
			t.Errorf("after %d sessions the bridge has the children %q; at most its own helper is expected", n, kids)
		}
		return files, goroutines(s)
	}
	files1, gos1 := run(1, 50)
	files500, gos500 := run(500, files1)
	if gos500 > gos1 {
		t.Errorf("%d goroutines after 500 sessions, %d after one", gos500, gos1)
	}
	t.Logf("open files %d and %d, goroutines %d and %d", files1, files500, gos1, gos500)
}

// connections counts the sockets of a bridge, less the two that listen: for clients, and for
// "mcp-bridge trace".
func connections(t *testing.T, pid int) int {
	t.Helper()
	return sockets(t, pid) - 2
}

// sockets counts the sockets of a process.
func sockets(t *testing.T, pid int) int {
	t.Helper()
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	n := 0
	for _, l := range links {
		if to, _ := os.Readlink(l); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// useSessions opens n sessions, uses each, and then deletes them all.
func (s *server) useSessions(n int) {
	s.t.Helper()
	sessions := make([]*session, n)
	each := func(f func(i int) error) {
		var wg sync.WaitGroup
		next := make(chan int)
		for range 8 {
			wg.Go(func() {
				for i := range next {
					if err := f(i); err != nil {
						s.t.Error(err)
					}
				}
			})
		}
		for i := range n {
			next <- i
		}
		close(next)
		wg.Wait()
	}
	each(func(i int) (err error) {
		sessions[i], err = s.tryOpen("2025-11-25")
		return err
	})
	if s.t.Failed() {
		s.t.FailNow()
	}
	each(func(i int) error {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"i":%d}}`, i, i)
		got, err := sessions[i].tryCall(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":{"i":%d}}`, i, i))
		if err != nil || len(got) != 1 || got[0] != want {
			return fmt.Errorf("session %d: %q %v", i, got, err)
		}
		return nil
	})
	each(func(i int) error {
		if status := sessions[i].end(); status != http.StatusNoContent && status != http.StatusOK {
			return fmt.Errorf("DELETE of session %d: status %d", i, status)
		}
		return nil
	})
}

// TestServeKilled: SIGKILL of the bridge leaves nothing behind: not a child
// that ignores the end of stdin and SIGTERM, nor a grandchild that works on
// the pipes it inherited, as under npx, or that ignores everything, even in a
// session of its own.
func TestServeKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		n    int
	}{
		{"stubborn child", []string{"-ignore-eof", "-ignore-term"}, 2},
		{"grandchild", []string{"-ignore-eof", "-grandchild", "reader"}, 4},
		{"stubborn grandchild", []string{"-grandchild", "holder"}, 4},
		{"grandchild in its own session", []string{"-grandchild", "session"}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			s := serve(t, nil, append(c.args, "-pids", pids)...)
			// Sessions started from more than one thread of the bridge.
			s.open("2025-06-18")
			s.open("2025-11-25")
			ws := watch(t, pids, c.n)
			s.signal(os.Kill)
			s.wait()
			waitGone(t, ws)
		})
	}
}

// TestServeGrandchildren: ST7. The end of a session, and that of the bridge,
// takes with it grandchildren that hold stdout open and ignore SIGTERM, even
// in a session of their own, and is not held up by them.
func TestServeGrandchildren(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"holder", "session"} {
		for _, how := range []string{"delete", "terminate", "crash"} {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				pids := filepath.Join(t.TempDir(), "pids")
				s := serve(t, hurry, "-pids", pids, "-grandchild", kind)
				c := s.open("2025-06-18")
				ws := watch(t, pids, 2)
				switch how {
				case "delete":
					c.end()
				case "terminate":
					s.signal(syscall.SIGTERM)
					if code := s.wait(); code != 0 {
						t.Errorf("exit status %d, want 0", code)
					}
				case "crash":
					c.call(`{"jsonrpc":"2.0","id":1,"method":"exit","params":{"code":3}}`)
				}
				waitGone(t, ws)
			})
		}
	}
}

// TestServeStubbornChild: ST7. A child that ignores the end of its stdin and
// SIGTERM is killed.
func TestServeStubbornChild(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	s := serve(t, hurry, "-pids", pids, "-ignore-eof", "-ignore-term")
	c := s.open("2025-06-18")
	ws := watch(t, pids, 1)
	c.end()
	waitGone(t, ws)
}
