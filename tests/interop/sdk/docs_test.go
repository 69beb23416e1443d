package sdk

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// TestInspector runs each command of README.md and of the curl page of the docs that uses the inspector's CLI
// against the demo, in the version that the page names.
func TestInspector(t *testing.T) {
	t.Parallel()
	const npx, address = "npx -y @modelcontextprotocol/inspector-cli@", "http://127.0.0.1:8080/"
	version := peers.Version(t, "@modelcontextprotocol/inspector-cli")
	url := strings.TrimSuffix(peers.Serve(t, "--demo"), "mcp")
	// The CLI starts itself once more, with the node that it finds in PATH.
	path := strings.Join([]string{filepath.Dir(peers.Node(t)), filepath.Dir(peers.Bridge(t)), os.Getenv("PATH")}, string(os.PathListSeparator))
	for _, name := range []string{"README.md", "docs/curl.md"} {
		page, err := os.ReadFile(filepath.Join(peers.Root(), filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for line := range strings.Lines(string(page)) {
			if !strings.Contains(line, "inspector-cli") {
				continue
			}
			args, ok := strings.CutPrefix(strings.TrimSpace(line), npx+version+" ")
			if !ok || !strings.Contains(args, address) {
				t.Errorf("%s has %q, want %s%s with the address %s: later releases of the CLI do not run on their own", name, line, npx, version, address)
				continue
			}
			ran++
			args = strings.Replace(args, address, url, 1)
			cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `"$@" ` + args, "sh"}, peers.Inspector(t)...)...)
			cmd.Stderr = os.Stderr
			cmd.Env = append(os.Environ(), "PATH="+path, "AUTH=Bearer abc")
			if out, err := cmd.Output(); err != nil || !json.Valid(out) || bytes.Contains(out, []byte(`"isError": true`)) {
				t.Errorf("%s: %q: %v\n%s", name, args, err, out)
			}
		}
		if ran == 0 {
			t.Errorf("%s shows no use of the inspector's CLI", name)
		}
	}
}

// TestLaunchers: servers that are started by a launcher, as most are: npx and
// go run are our child, and the server is theirs.
func TestLaunchers(t *testing.T) {
	for _, l := range []struct {
		name  string
		flags []string
		argv  []string
		plan  plan
	}{
		{"npx", []string{"--cwd", filepath.Join(peers.Root(), "tests")}, []string{"npx", "--offline", "-y", "@modelcontextprotocol/server-everything"}, nodePlan},
		{"go run", nil, []string{"go", "run", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"}, goPlan},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			url := peers.Serve(t, append(append(l.flags, "--"), l.argv...)...)
			got := typeScript.run(t, target{URL: url, Drop: true}, l.plan)
			if missing := incomplete(l.plan, got, true); missing != nil {
				t.Errorf("these steps did not work: %q", missing)
			}
		})
	}
}
