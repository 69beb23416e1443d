//go:build unix

package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestNginxEnds: SS5, WS4. Through nginx, too, the end of a client's
// connection is the end of its server, and the end of the server is that of
// the connection, after the answer to what was in progress.
func TestNginxEnds(t *testing.T) {
	t.Parallel()
	nginxBin(t)
	pids := filepath.Join(t.TempDir(), "pids")
	s := serve(t, hurry, "-pids", pids)
	n := startNginx(t, webSocketMap+fmt.Sprintf("server {\nlisten ADDR;\nlocation / { proxy_pass http://%s; %s }\n}", s.host(), webSocket))
	front := newSite(t, "http://"+n.addr)
	for _, transport := range transports {
		c := front.mustOpen(t, transport)
		mustAnswer(t, c, ping)
		if n := alive(t, pids); n != 1 {
			t.Errorf("%s: with one session there are %d processes", transport, n)
		}
		c.close()
		harness.WaitUntil(t, "the server of a client that has gone to end, over "+transport, func() bool { return alive(t, pids) == 0 })

		c = front.mustOpen(t, transport)
		_, _, text := errorOf(t, mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"exit","params":{"code":3,"lines":["last words"]}}`))
		if !strings.Contains(text, "last words") {
			t.Errorf("%s: a server that exits: %s", transport, text)
		}
		isOver(t, c)
	}
}
