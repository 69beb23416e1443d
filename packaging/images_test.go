package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An engine is a podman with a store of its own.
type engine struct {
	t    *testing.T
	argv []string
}

// newEngine finds podman. TEST_PODMAN, which CI sets, names it; then it must be able to run the images.
func newEngine(t *testing.T) *engine {
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
	e := &engine{t, []string{bin, "--root", at("root"), "--runroot", at("run"), "--tmpdir", at("tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"}}
	if runc, err := exec.LookPath("runc"); err == nil {
		e.argv = append(e.argv, "--runtime", runc)
	}
	t.Cleanup(func() {
		e.do("rm", "--all", "--force", "--time", "0")
		mounts, _ := filepath.Glob(at("root/*/*/userdata/shm"))
		for _, m := range append(mounts, at("root")) {
			_ = exec.Command("umount", "--lazy", m).Run()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *engine) do(args ...string) string {
	e.t.Helper()
	cmd := exec.Command(e.argv[0], append(slices.Clone(e.argv[1:]), args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr // also warnings, such as that there is no systemd to ask for the health at times
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("podman %v: %v: %s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// tree makes an image of a directory.
func (e *engine) tree(dir, name string) {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "image.tar")
	output(e.t, exec.Command("tar", "--create", "--numeric-owner", "--directory", dir, "--file", file, "."))
	e.do("import", "--quiet", file, name)
	must(e.t, os.Remove(file))
}

// stage is one FROM of the Dockerfile with what follows it.
func stage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	must(t, err)
	for _, s := range regexp.MustCompile(`(?m)^FROM `).Split(string(text), -1)[1:] {
		first, _, _ := strings.Cut(s, "\n")
		if first == name || strings.HasSuffix(first, " AS "+name) {
			return "FROM " + s
		}
	}
	t.Fatalf("the Dockerfile has no stage %s", name)
	return ""
}

// buildStage does on this machine what the Dockerfile's first stage does in a container, and returns its /image.
func buildStage(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "image")
	text := strings.ReplaceAll(stage(t, "build"), "\\\n", "")
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "RUN ")
		if !ok || strings.HasPrefix(command, "go mod download") {
			continue
		}
		cmd := exec.Command("sh", "-ec", strings.ReplaceAll(command, "/image", dir))
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "VERSION=v"+version, "TARGETOS=", "TARGETARCH=")
		output(t, cmd)
	}
	return dir
}

// answer is what the servers in the images say to initialize.
const answer = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"a","version":"1"}}}`

// Every image of the Dockerfile runs the bridge as process 1, not as root, without a privilege, on a file system that it
// cannot write to. It is healthy, says what it is, ends when it is told to, and a server that its base is for works.
// The bases are made of Debian's packages, and the first stage is run here: there is no registry.
func TestImages(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	built := t.TempDir()
	must(t, os.Rename(buildStage(t), built+"/image"))
	e.tree(built, "build")
	base := debian(t, "base-files", "coreutils", "dash", "libc6", "libstdc++6", "libgcc-s1")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node here")
	}
	node, err = filepath.EvalSymlinks(node)
	must(t, err)
	output(t, exec.Command("cp", node, base+"/usr/bin/node"))
	must(t, os.MkdirAll(base+"/home/node", 0o755))
	must(t, os.Chown(base+"/home/node", 1000, 1000))
	must(t, os.MkdirAll(base+"/uv/bin", 0o755))
	for _, name := range []string{"uv", "uvx"} { // what cannot be had without a network
		must(t, os.WriteFile(base+"/uv/bin/"+name, []byte("#!/bin/sh\nwhile read -r line; do echo '"+answer+"'; done\n"), 0o755))
	}
	e.tree(base, "base")

	for _, image := range []struct {
		stage, program, user string
		server               []string // that the base is for
	}{
		{"scratch", "/mcp-bridge", "65532", nil},
		{"node", "mcp-bridge", "1000", []string{"node", "-e", `process.stdin.on("data", () => console.log('` + answer + `'))`}},
		{"uv", "mcp-bridge", "65532", []string{"uvx", "a-server"}},
	} {
		dir := t.TempDir()
		first, rest, _ := strings.Cut(stage(t, image.stage), "\n")
		if image.stage != "scratch" {
			first = "FROM localhost/base"
		}
		rest = strings.NewReplacer("--from=build ", "--from=localhost/build ", "--from=uv-build ", "--from=localhost/base ").Replace(rest)
		must(t, os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(first+"\n"+rest), 0o644))
		e.do("build", "--quiet", "--pull=never", "--format", "docker", "--build-arg", "VERSION=v"+version, "--tag", image.stage+"-image", dir)
		e.runs(image.stage+"-image", image.program, image.user, image.server)
	}
}

// runs checks an image as a container.
func (e *engine) runs(image, program, user string, server []string) {
	t := e.t
	t.Helper()
	if got := e.do("inspect", "--format", `{{index .Config.Labels "org.opencontainers.image.version"}} {{.Config.User}}`, image); got != fmt.Sprintf("v%s %s:%s", version, user, user) {
		t.Errorf("%s: version and user are %q", image, got)
	}
	confined := []string{
		"--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none",
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", // podman asks for higher ones than it may have inside another container
	}
	what := append([]string{image, "serve"}, "--demo")
	if server != nil {
		what = append([]string{image, "serve", "--"}, server...)
	}
	id := e.do(append(append([]string{"run", "--detach"}, confined...), what...)...)
	healthy := false
	for range 50 { // until it listens
		cmd := exec.Command(e.argv[0], append(slices.Clone(e.argv[1:]), "healthcheck", "run", id)...)
		if healthy = cmd.Run() == nil; healthy {
			break
		}
	}
	if !healthy {
		t.Errorf("%s is not healthy: %s", image, e.do("logs", id))
	}
	status, err := os.ReadFile("/proc/" + e.do("inspect", "--format", "{{.State.Pid}}", id) + "/status")
	must(t, err)
	for _, want := range []string{`NSpid:\s.*\s1`, `Uid:\s` + user + `\s`, `CapEff:\s0+`, `CapBnd:\s0+`, `NoNewPrivs:\s1`} {
		if !regexp.MustCompile(`(?m)^` + want + `$|^` + want).Match(status) {
			t.Errorf("%s: its process has no %s: %s", image, want, status)
		}
	}
	if got := e.do("exec", id, program, "version"); !strings.HasPrefix(got, "mcp-bridge v"+version+" ") {
		t.Errorf("%s says %q", image, got)
	}
	e.do("stop", "--time", "60", id)
	if got := e.do("inspect", "--format", "{{.State.ExitCode}}", id); got != "0" {
		t.Errorf("%s: exit status %s, want 0: %s", image, got, e.do("logs", id))
	}
	if server != nil {
		cmd := exec.Command(e.argv[0], slices.Concat(e.argv[1:], []string{"run", "--interactive", "--rm"}, confined, []string{image, "connect", "--protocol", "legacy", "--"}, server)...)
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n")
		if got := output(t, cmd); !strings.Contains(got, answer) {
			t.Errorf("%s: the server %v answers %q", image, server, got)
		}
	}
}
