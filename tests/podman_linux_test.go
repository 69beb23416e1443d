package tests

import (
	"archive/tar"
	"bytes"
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
)

// A podman is an engine with a store of its own, which has an image "child": the
// fixture and nothing else.
type podman struct {
	t    *testing.T
	argv []string // the program and its global options
}

// newPodman finds podman. TEST_PODMAN, which CI sets, names it; then it must be
// there and able to run something.
func newPodman(t *testing.T) *podman {
	t.Helper()
	bin := os.Getenv("TEST_PODMAN")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
			t.Skip("there is no podman here for root, and TEST_PODMAN does not say that there should be")
		}
	}
	dir, err := os.MkdirTemp("", "podman") // a short name: there are sockets in it
	bridgetest.Must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	p := &podman{t, []string{bin, "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"}}
	t.Cleanup(func() {
		for _, id := range strings.Fields(p.must("ps", "-aq")) {
			p.must("rm", "-f", "-t", "0", id)
		}
		mounts, _ := filepath.Glob(at("root/*/*/userdata/shm"))
		for _, m := range mounts {
			_ = unix.Unmount(m, unix.MNT_DETACH)
		}
		_ = unix.Unmount(at("root"), unix.MNT_DETACH)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if path, err := exec.LookPath("runc"); err == nil {
		p.argv = append(p.argv, "--runtime", path)
	}
	writeFile(t, at("image.tar"), string(childImage(t, at("child"))))
	p.must("import", at("image.tar"), "child")
	if out, err := p.run(append(p.runArgs(), "child", "/child", "-exit", "0")...); err != nil {
		if os.Getenv("TEST_PODMAN") == "" {
			t.Skipf("podman cannot run a container here: %v: %s", err, out)
		}
		t.Fatalf("podman cannot run a container: %v: %s", err, out)
	}
	return p
}

// childImage returns a file system with the fixture in it, which is built as file.
func childImage(t *testing.T, file string) []byte {
	t.Helper()
	build := exec.Command("go", "build", "-o", file, "./fixtures/child")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // it needs no library
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := harness.ReadFile(t, file)
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	bridgetest.Must(t, w.WriteHeader(&tar.Header{Name: "child", Mode: 0o755, Size: int64(len(program))}))
	_, _ = w.Write([]byte(program))
	bridgetest.Must(t, w.Close())
	return image.Bytes()
}

// runArgs run a container with stdin. The limits are there because podman asks for
// higher ones than it may have inside another container.
func (p *podman) runArgs() []string {
	return []string{"run", "-i", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"}
}

func (p *podman) run(args ...string) (string, error) {
	args = append(slices.Clone(p.argv[1:]), args...)
	out, err := exec.Command(p.argv[0], args...).CombinedOutput()
	return string(out), err
}

func (p *podman) must(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return out
}

// only returns the process of the only container.
func (p *podman) only() watched {
	p.t.Helper()
	ids := strings.Fields(p.must("ps", "-q"))
	if len(ids) != 1 {
		p.t.Fatalf("%d containers run, want one", len(ids))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(p.must("inspect", "--format", "{{.State.Pid}}", ids[0])))
	if err != nil || pid <= 1 {
		p.t.Fatalf("process %d: %v", pid, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	bridgetest.Must(p.t, err)
	p.t.Cleanup(func() { unix.Close(fd) })
	return watched{pid, fd}
}

// TestContainers: ST7. A container ends with its session and with the bridge,
// however that ends and whatever its server ignores. At that point it is
// gone from podman's list, and no file is left.
func TestContainers(t *testing.T) {
	t.Parallel()
	stubborn := []string{"-ignore-eof", "-ignore-term"}
	for name, c := range map[string]struct {
		server []string
		end    func(*server, *session)
		killed bool // the log says that the container was killed
	}{
		"ends by itself":    {nil, func(_ *server, c *session) { c.end() }, false},
		"session":           {stubborn, func(_ *server, c *session) { c.end() }, true},
		"bridge is stopped": {stubborn, func(s *server, _ *session) { s.signal(syscall.SIGTERM) }, true},
		"bridge is killed":  {stubborn, func(s *server, _ *session) { s.signal(syscall.SIGKILL) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPodman(t)
			temp := t.TempDir()
			argv := slices.Concat([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--stdin-wait", "1s", "--term-wait", "1s", "--"},
				p.argv, p.runArgs(), []string{"child", "/child"}, c.server)
			s := serveArgv(t, []string{"TMPDIR=" + temp}, argv...)
			session := s.open("2025-06-18")
			container := p.only()
			began := time.Now()
			c.end(s, session)
			empty := func() bool {
				left, err := os.ReadDir(temp)
				return err == nil && len(left) == 0 && p.must("ps", "-aq") == ""
			}
			if name == "bridge is stopped" {
				if code := s.wait(); code != 0 {
					t.Errorf("exit status %d, want 0", code)
				}
				if !empty() {
					t.Errorf("the bridge has ended, and podman has %q, the directory for temporary files %v", p.must("ps", "-a"), mustGlob(t, temp+"/*"))
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
