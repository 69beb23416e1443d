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

// TestInspector runs each command of the curl page of the docs that uses the inspector's CLI
// against the demo, in the version that the page names.
func TestInspector(t *testing.T) {
	t.Parallel()
	const npx, address = "npx -y @modelcontextprotocol/inspector-cli@", "http://127.0.0.1:8080/mcp"
	version := peers.Version(t, "@modelcontextprotocol/inspector-cli")
	page, err := os.ReadFile(filepath.Join(peers.Root(), "docs", "curl.md"))
	if err != nil {
		t.Fatal(err)
	}
	url := peers.Serve(t, "--demo")
	ran := 0
	for line := range strings.Lines(string(page)) {
		if !strings.Contains(line, "inspector-cli") {
			continue
		}
		args, ok := strings.CutPrefix(strings.TrimSpace(line), npx+version+" ")
		if !ok || !strings.Contains(args, address) {
			t.Errorf("docs/curl.md has %q, want %s%s with the address %s: later releases of the CLI do not run on their own", line, npx, version, address)
			continue
		}
		ran++
		argv := append(peers.Inspector(t), strings.Fields(strings.Replace(args, address, url, 1))...)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Stderr = os.Stderr
		// The CLI starts itself once more, with the node that it finds in PATH.
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(argv[0])+string(os.PathListSeparator)+os.Getenv("PATH"))
		if out, err := cmd.Output(); err != nil || !json.Valid(out) || bytes.Contains(out, []byte(`"isError": true`)) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if ran == 0 {
		t.Error("docs/curl.md shows no use of the inspector's CLI")
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
