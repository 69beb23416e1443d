package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/podman"
)

// newPodman returns an engine with the image "child", which is the fixture.
func newPodman(t *testing.T) *podman.Engine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "child")
	build := exec.Command("go", "build", "-o", file, "./fixtures/child")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // it needs no library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return podman.New(t, file, "-exit", "0")
}

// onlyContainer returns the process of the only container.
func onlyContainer(t *testing.T, p *podman.Engine) watched {
	t.Helper()
	ids := strings.Fields(p.Must("ps", "-q"))
	if len(ids) != 1 {
		t.Fatalf("%d containers run, want one", len(ids))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(p.Must("inspect", "--format", "{{.State.Pid}}", ids[0])))
	if err != nil || pid <= 1 {
		t.Fatalf("process %d: %v", pid, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	bridgetest.Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return watched{pid, fd}
}

// TestContainers: ST7. A container ends with its session and with the bridge,
// however that ends and whatever its server ignores. At that point it is
// gone from podman's list, and no file is left.
func TestContainers(t *testing.T) {
	t.Parallel()
	stubborn := []string{"-ignore-eof", "-ignore-term"}
	for name, c := range map[string]struct {
		server    []string
		stdinWait string // how long the container has to end by itself
		end       func(*server, *session)
		killed    bool // the log says that the container was killed
	}{
		"ends by itself":    {nil, "5m", func(_ *server, c *session) { c.end() }, false},
		"session":           {stubborn, "1s", func(_ *server, c *session) { c.end() }, true},
		"bridge is stopped": {stubborn, "1s", func(s *server, _ *session) { s.signal(syscall.SIGTERM) }, true},
		"bridge is killed":  {stubborn, "1s", func(s *server, _ *session) { s.signal(syscall.SIGKILL) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPodman(t)
			temp := t.TempDir()
			argv := slices.Concat([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--stdin-wait", c.stdinWait, "--term-wait", "1s", "--"},
				p.Argv, p.RunArgs("--network", "none"), c.server)
			s := serveArgv(t, []string{"TMPDIR=" + temp}, argv...)
			session := s.open("2025-06-18")
			container := onlyContainer(t, p)
			began := time.Now()
			c.end(s, session)
			empty := func() bool {
				left, err := os.ReadDir(temp)
				return err == nil && len(left) == 0 && p.Must("ps", "-aq") == ""
			}
			if name == "bridge is stopped" {
				if code := s.wait(); code != 0 {
					t.Errorf("exit status %d, want 0", code)
				}
				if !empty() {
					t.Errorf("the bridge has ended, and podman has %q, the directory for temporary files %v", p.Must("ps", "-a"), mustGlob(t, temp+"/*"))
				}
			}
			waitGone(t, []watched{container})
			t.Logf("the server was gone after %v", time.Since(began).Round(10*time.Millisecond))
			harness.WaitUntil(t, "the container and its file to be removed", empty)
			if killed := strings.Contains(s.Log(), "container did not end and was killed"); killed != c.killed {
				t.Errorf("the log says that the container was killed: %v, want %v", killed, c.killed)
			}
		})
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	bridgetest.Must(t, err)
	return found
}
