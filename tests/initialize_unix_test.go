//go:build unix

package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// claimant is a server in a shell script that answers initialize with a version
// without sessions. %s is what it says to server/discover.
const claimant = `
while IFS= read -r line; do
	id=$(printf '%%s\n' "$line" | sed -E -n 's/.*"id":("[^"]*"|[0-9]+).*/\1/p')
	case $line in
	*'"method":"initialize"'*) answer='"result":{"protocolVersion":"2026-07-28","capabilities":{"tools":{}},"serverInfo":{"name":"claimant","version":"1"}}';;
	*'"method":"server/discover"'*) answer='%s';;
	*'"method":"tools/call"'*2026-07-28*) answer='"result":{"resultType":"complete","content":[],"modern":true}';;
	*'"id"'*) answer='"error":{"code":-32601,"message":"no"}';;
	*) continue;;
	esac
	printf '{"jsonrpc":"2.0","id":%%s,%%s}\n' "$id" "$answer"
done
`

const (
	discovered   = `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	undiscovered = `"error":{"code":-32601,"message":"Method not found"}`
)

// claimants returns how the same server is reached on stdio and over Streamable HTTP.
func claimants(t *testing.T, discovery string) map[string][]string {
	script := filepath.Join(t.TempDir(), "claimant.sh")
	writeFile(t, script, fmt.Sprintf(claimant, discovery))
	u := unstarted(t)
	u.before = func(w http.ResponseWriter, r *http.Request, body string) bool {
		method, id := envelope(body)
		answer := `"error":{"code":-32601,"message":"no"}`
		switch {
		case id == "":
			return false
		case method == "initialize":
			answer = `"result":{"protocolVersion":"2026-07-28","capabilities":{"tools":{}},"serverInfo":{"name":"claimant","version":"1"}}`
		case method == "server/discover":
			answer = discovery
		case method == "tools/call" && r.Header.Get("Mcp-Protocol-Version") == modernVersion && strings.Contains(body, metaVersion):
			answer = `"result":{"resultType":"complete","content":[],"modern":true}`
		}
		reply(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, answer))
		return true
	}
	u.Start()
	return map[string][]string{"stdio": {"--", "sh", script}, "http": {u.URL}}
}

// TestInitializeAnsweredAsModern: ED6, ED9. A server that answers initialize with a
// version that has no sessions is not taken at its word, and neither is its answer
// passed on: it is asked what it speaks, and what its older client says translated,
// if it is a server of 2026-07-28. If it is none, or must not be spoken to as one,
// the client is told so.
func TestInitializeAnsweredAsModern(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, discovery, protocol string
		works                     bool
	}{
		{"auto", discovered, "auto", true},
		{"legacy", discovered, "legacy", false},
		{"auto, but it is none", undiscovered, "auto", false},
	} {
		for over, target := range claimants(t, c.discovery) {
			for _, isolation := range []string{"auto", "shared"} {
				t.Run(c.name+" "+over+" "+isolation, func(t *testing.T) {
					t.Parallel()
					argv := append([]string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--isolation", isolation, "--protocol", c.protocol}, target...)
					ws, err := serveArgv(t, nil, argv...).site().openWS(t.Context())
					bridgetest.Must(t, err)
					defer ws.close()
					claims(t, ws, c.works)
				})
			}
		}
	}
}

// claims wants a client to get an older version from the server, and its calls to
// work, or else an error that names the version.
func claims(t *testing.T, c talker, works bool) {
	t.Helper()
	answer, err := c.exchange(within(t, harness.Patience), initialize("2025-11-25"), nil)
	bridgetest.Must(t, err)
	if !works {
		if _, code, text := errorOf(t, answer); code != -32603 || !strings.Contains(text, "2026-07-28") {
			t.Errorf("initialize: %d %s", code, text)
		}
		return
	}
	var m struct {
		Result struct{ ProtocolVersion string }
	}
	_ = json.Unmarshal([]byte(answer), &m)
	if m.Result.ProtocolVersion != "2025-11-25" {
		t.Fatalf("initialize: %s", answer)
	}
	_ = c.notify(t.Context(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if answer, err := c.exchange(within(t, harness.Patience), `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`, nil); err != nil || !strings.Contains(answer, `"modern":true`) {
		t.Errorf("the call: %s, %v", answer, err)
	}
}
