package tests

import (
	"path/filepath"
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
