package tests

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeDeafServer: ST9. A client that is gone does not keep a server that reads
// nothing, though its end stands behind what the server was to read.
func TestServeDeafServer(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	pids := filepath.Join(dir, "pids")
	startServe(t, nil, 1, "--listen", "unix:"+filepath.Join(dir, "s"), "--", childBin, "-pids", pids)
	c := mustLines(t, filepath.Join(dir, "s"))
	server := watch(t, pids, 1)
	mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"deaf"}`)
	message := `{"jsonrpc":"2.0","method":"notifications/x","params":` + big(100_000) + `}`
	for err := error(nil); err == nil; err = c.notify(t.Context(), message) { // until nothing more is taken
		if err := c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	c.close()
	waitGone(t, server)
}

// TestModernTimeout: --request-timeout also bounds how long the bridge looks whether a server
// that says nothing at all speaks 2026-07-28.
func TestModernTimeout(t *testing.T) {
	t.Parallel()
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--request-timeout", "1s", "--", "sleep", "1000")
	for _, request := range []struct{ method, name, params string }{{"tools/list", "", ""}, {"tools/call", "x", `"name":"x",`}} {
		text := `{"jsonrpc":"2.0","id":1,"method":"` + request.method + `","params":{` + request.params + metaModern + `}}`
		resp := s.site().postFilled(t, func() {}, modernHeader(request.method, request.name), text, 0, "")
		if resp == nil {
			t.Fatal("no reply")
		}
		reply, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(reply), `"reason":"timeout"`) {
			t.Errorf("%s: %s", request.method, reply)
		}
	}
}
