package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestRemoteKilled: LE7, SS7, WS4. A remote server that is killed in the middle
// of a call leaves no call without an answer, whatever the client speaks: over
// Streamable HTTP, where the stream has event ids and might be resumed, the
// error comes when --resume-timeout has gone by.
func TestRemoteKilled(t *testing.T) {
	t.Parallel()
	for name, far := range map[string]struct {
		path  string
		flags []string
	}{
		"Streamable HTTP, legacy": {"/mcp", []string{"--client-protocol", "legacy"}},
		"Streamable HTTP, both":   {"/mcp", nil},
		"HTTP+SSE":                {"/sse", nil},
		"WebSocket":               {"/ws", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote := serve(t, far.flags, "-speak", "legacy")
			url := strings.TrimSuffix(remote.url, "/mcp") + far.path
			if far.path == "/ws" {
				url = "ws" + strings.TrimPrefix(url, "http")
			}
			front := serveURL(t, url, "--resume-timeout", "1s").site()
			clients := map[string]talker{
				"connect":         stdioTalker{connect(t, url, "--resume-timeout", "1s")},
				"connect, modern": stdioTalker{connect(t, url, "--resume-timeout", "1s")},
				"mcp, modern":     &modernTalker{front},
			}
			if _, err := greet(within(t, harness.Patience), clients["connect"], "2025-11-25"); err != nil {
				t.Fatal(err)
			}
			for _, transport := range transports {
				clients[transport] = front.mustOpen(t, transport)
			}
			type end struct{ client, answer string }
			ends := make(chan end, len(clients))
			for client, c := range clients {
				heard := make(chan struct{}, 1)
				go func() {
					answer, err := c.exchange(within(t, 3*harness.Patience), longCallOf(client), func(string) {
						select {
						case heard <- struct{}{}:
						default:
						}
					})
					ends <- end{client, fmt.Sprint(answer, err)}
				}()
				recv(t, heard) // it is in progress, and its stream has begun
			}
			remote.signal(os.Kill)
			killed := time.Now()
			for range clients {
				e := recv(t, ends)
				if id, code, _ := errorOf(t, strings.TrimSuffix(e.answer, "<nil>")); id != "1" || code != -32603 {
					t.Errorf("%s: answered with %s", e.client, e.answer)
				}
				t.Logf("%s: after %v", e.client, time.Since(killed).Round(time.Millisecond))
			}
		})
	}
}

// longCallOf is a call of an hour with progress ten times a second.
func longCallOf(client string) string {
	meta := `"progressToken":"p"`
	if strings.Contains(client, "modern") {
		meta += fmt.Sprintf(`,%q:%q,%q:{}`, metaVersion, modernVersion, metaCaps)
	}
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{"ms":3600000,"n":36000},"_meta":{` + meta + `}}}`
}
