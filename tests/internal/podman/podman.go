// Package podman runs a program in real containers, for tests. It needs podman, runc and root.
package podman

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// An Engine is a podman with a store of its own, which has one image. It ends with the test, with all of its containers.
type Engine struct {
	Argv []string // the program and its global options

	t     *testing.T // the test that the podman is for
	image string     // the name of the image
}

// New finds podman, and makes its image. TEST_PODMAN, which CI sets, names it; then it must be there and able to run something. Without
// that variable, t is skipped where podman is missing or cannot run anything. The image has the name of the program, which
// is a file that needs no library, and nothing but it; check are arguments with which the program ends at once.
func New(t *testing.T, program string, check ...string) *Engine {
	t.Helper()
	bin := os.Getenv("TEST_PODMAN")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("podman"); err != nil || os.Geteuid() != 0 {
			t.Skip("there is no podman here for root, and TEST_PODMAN does not say that there should be")
		}
	}
	dir, err := os.MkdirTemp("", "podman") // a short name: there are sockets in it
	must(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	e := &Engine{t: t, image: filepath.Base(program),
		Argv: []string{bin, "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"}}
	t.Cleanup(func() {
		for _, id := range strings.Fields(e.Must("ps", "-aq")) {
			e.Must("rm", "-f", "-t", "0", id)
		}
		mounts, _ := filepath.Glob(at("root/*/*/userdata/shm"))
		for _, m := range append(mounts, at("root")) {
			_ = exec.Command("umount", "--lazy", m).Run()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if path, err := exec.LookPath("runc"); err == nil {
		e.Argv = append(e.Argv, "--runtime", path)
	}
	must(t, os.WriteFile(at("image.tar"), tarOf(t, program), 0o600))
	e.Must("import", at("image.tar"), e.image)
	if out, err := e.Run(append(e.RunArgs("--network", "none"), check...)...); err != nil {
		if os.Getenv("TEST_PODMAN") == "" {
			t.Skipf("podman cannot run a container here: %v: %s", err, out)
		}
		t.Fatalf("podman cannot run a container: %v: %s", err, out)
	}
	return e
}

// tarOf returns a file system with a program in it, at its top, as a tar archive.
func tarOf(t *testing.T, program string) []byte {
	t.Helper()
	text, err := os.ReadFile(program)
	must(t, err)
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	must(t, w.WriteHeader(&tar.Header{Name: filepath.Base(program), Mode: 0o755, Size: int64(len(text))}))
	_, _ = w.Write(text)
	must(t, w.Close())
	return image.Bytes()
}

// RunArgs returns the arguments of podman that run the program in a container, with stdin. flags are podman's own; the caller adds the
// arguments of the program. The limits are there because podman asks for higher ones than it may have inside another container.
func (e *Engine) RunArgs(flags ...string) []string {
	return slices.Concat([]string{"run", "-i", "--rm", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"}, flags,
		[]string{e.image, path.Join("/", e.image)})
}

// Run runs a command of podman to its end, and returns what it has written to stdout and stderr.
func (e *Engine) Run(args ...string) (string, error) {
	args = append(slices.Clone(e.Argv[1:]), args...)
	out, err := exec.Command(e.Argv[0], args...).CombinedOutput()
	return string(out), err
}

// Must runs a command of podman to its end, and returns what it has written to stdout and stderr. An error ends the test.
func (e *Engine) Must(args ...string) string {
	e.t.Helper()
	out, err := e.Run(args...)
	if err != nil {
		e.t.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return out
}

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
