package packaging

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// debian makes a system of the files that Debian's packages have on this machine, with all that they depend on. It is
// clean: neither configuration nor state of this machine is in it. It takes root, and a Debian or an Ubuntu; TEST_PODMAN,
// which CI sets, says that both are there.
func debian(t *testing.T, names ...string) (root string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-query"); err != nil || os.Geteuid() != 0 {
		if os.Getenv("TEST_PODMAN") != "" {
			t.Fatalf("there is no dpkg for root: %v", err)
		}
		t.Skip("this is no Debian, or the user is not root")
	}
	root = t.TempDir()
	must(t, os.Chmod(root, 0o755)) // also for the users of the system
	for _, dir := range []string{"bin", "lib", "lib64", "sbin"} {
		must(t, os.MkdirAll(filepath.Join(root, "usr", dir), 0o755))
		must(t, os.Symlink("usr/"+dir, filepath.Join(root, dir)))
	}
	packages := closure(t, names)
	for file := range strings.Lines(output(t, exec.Command("dpkg-query", append([]string{"--listfiles"}, packages...)...))) {
		if file = strings.TrimSpace(file); strings.HasPrefix(file, "/") && !unneeded(file) {
			copyFile(t, file, root)
		}
	}
	status := output(t, exec.Command("dpkg-query", append([]string{"--status"}, packages...)...))
	must(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755))
	must(t, os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte(status), 0o644))
	for _, name := range []string{"passwd", "group"} {
		text, err := os.ReadFile("/usr/share/base-passwd/" + name + ".master")
		must(t, err)
		must(t, os.WriteFile(filepath.Join(root, "etc", name), text, 0o644))
	}
	must(t, os.MkdirAll(filepath.Join(root, "dev"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o666))
	return root
}

// unneeded says that a file is there for people, or large and for others than those whom the tests run.
func unneeded(file string) bool {
	return strings.HasPrefix(file, "/usr/share/") && !strings.HasPrefix(file, "/usr/share/dpkg") || strings.Contains(file, "/gconv/") || strings.Contains(file, "/perl")
}

// closure returns the packages, and those that they depend on, as far as they are installed.
func closure(t *testing.T, names []string) (all []string) {
	t.Helper()
	depends := map[string]string{} // of those that are installed
	for line := range strings.Lines(output(t, exec.Command("dpkg-query", "--show", "--showformat", "${Status}|${Package}|${Pre-Depends}, ${Depends}\n"))) {
		if f := strings.SplitN(strings.TrimSpace(line), "|", 3); strings.HasSuffix(f[0], " installed") {
			depends[f[1]] = f[2]
		}
	}
	for known := map[string]bool{}; len(names) > 0; {
		name, _, _ := strings.Cut(names[0], ":")
		names = names[1:]
		list, installed := depends[name]
		if known[name] || !installed {
			continue
		}
		known[name] = true
		all = append(all, name)
		for _, d := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
			d, _, _ = strings.Cut(strings.TrimSpace(d), " ")
			names = append(names, d)
		}
	}
	return all
}

// copyFile puts a file of this machine at the same place below root. One that has been taken away is left out.
func copyFile(t *testing.T, file, root string) {
	t.Helper()
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(t, err)
	to := filepath.Join(root, file)
	if _, err := os.Lstat(to); err == nil {
		return
	}
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	switch {
	case info.IsDir():
		must(t, os.Mkdir(to, info.Mode().Perm()))
		must(t, os.Chmod(to, info.Mode()))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(file)
		must(t, err)
		must(t, os.Symlink(target, to))
	case info.Mode().IsRegular():
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(to, text, info.Mode().Perm()))
	}
}

// get asks for a path over a Unix socket, when the log tells that it is there.
func get(socket, path string, log io.Reader) (string, error) {
	lines := bufio.NewScanner(log)
	for lines.Scan() && !strings.Contains(lines.Text(), "unix:") {
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://localhost" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// output runs a command and returns what it writes.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
	return string(out)
}
