package tests

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestVersionIsOne: what `mcp-bridge version` prints is the version under which the
// bridge introduces itself to a server, when it asks what that speaks and when it
// begins a session, and the demo to its clients.
func TestVersionIsOne(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(bridgeBin, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(out))
	if len(words) < 2 {
		t.Fatalf("version prints %q", out)
	}
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	record := filepath.Join(t.TempDir(), "stdin")
	p := start(t, nil, bridgeBin, "connect", "--", childBin, "-speak", "legacy-silent", "-record", record)
	p.send(list)
	if got := p.line(); !strings.Contains(got, `"result"`) {
		t.Fatalf("tools/list: %.300s", got)
	}
	introduced := regexp.MustCompile(`"clientInfo":\{"name":"mcp-bridge","version":"([^"]+)"`).FindAllStringSubmatch(harness.ReadFile(t, record), -1)
	if len(introduced) != 1 || slices.ContainsFunc(introduced, func(m []string) bool { return m[1] != words[1] }) {
		t.Errorf("the server was told %q; version prints %q", introduced, words[1])
	}
	p = start(t, nil, bridgeBin, "demo")
	p.send(list)
	if got := p.line(); !strings.Contains(got, `"version":"`+words[1]+`"`) {
		t.Errorf("the demo says %.300s; version prints %q", got, words[1])
	}
}
