package tests

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// The series of a server that a new configuration removes go, also those of a session that it has ended; those of others stay.
func TestMetricsOfRemovedServer(t *testing.T) {
	t.Parallel()
	file, metrics := filepath.Join(t.TempDir(), "servers.json"), bridgetest.FreeAddr(t)
	write := func(names ...string) {
		for i, name := range names {
			names[i] = fmt.Sprintf(`%q: {"command": %s, "args": ["demo"]}`, name, quote(bridgeBin))
		}
		replaceFile(t, file, `{"mcpServers": {`+strings.Join(names, ", ")+`}}`)
	}
	write("stays", "goes")
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file, "--metrics", metrics)
	front := newSite(t, "http://"+s.host())
	for _, name := range []string{"stays", "goes"} {
		for _, transport := range transports {
			front.at("/servers/"+name).mustOpen(t, transport)
		}
	}
	text := func() string {
		resp, err := newSite(t, "http://"+metrics).request(t.Context(), "GET", "/metrics", "", nil)
		bridgetest.Must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		bridgetest.Must(t, err)
		return string(body)
	}
	if all := text(); !strings.Contains(all, `mcp_bridge_sessions{era="legacy",server="goes",transport="sse"} 1`) {
		t.Errorf("the session is not counted:\n%s", all)
	}
	write("stays")
	harness.WaitUntil(t, "the series to go", func() bool { return !strings.Contains(text(), `server="goes"`) })
	if all := text(); !strings.Contains(all, `mcp_bridge_sessions{era="legacy",server="stays",transport="sse"} 1`) {
		t.Errorf("another server's series are gone:\n%s", all)
	}
}
