package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A keyring that does not answer, because somebody would have to unlock it, does not keep serve from ending.
func TestServeEndsWhileKeyringWaits(t *testing.T) {
	bus, err := net.Listen("unix", filepath.Join(t.TempDir(), "bus"))
	bridgetest.Must(t, err)
	defer bus.Close()
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+bus.Addr().String())
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"mcpServers":{"a":{"url":"http://127.0.0.1:1/mcp"}}}`), 0o600))
	for _, what := range []string{"http://127.0.0.1:1/mcp", "--config=" + file} {
		ctx, stop := context.WithCancel(t.Context())
		ended, stderr := make(chan int, 1), new(bytes.Buffer)
		go func() {
			ended <- run(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--token-store", "keyring", "--auth-dir", filepath.Join(t.TempDir(), "auth"), what},
				environment{stdin: os.Stdin, stdout: os.Stdout, stderr: stderr, lookup: func(string) (string, bool) { return "", false }})
		}()
		accepted := make(chan net.Conn, 1)
		go func() {
			if c, err := bus.Accept(); err == nil { // else the test has ended
				accepted <- c
			}
		}()
		var asked net.Conn
		select {
		case asked = <-accepted:
		case status := <-ended:
			t.Fatalf("%s: it has ended before it asked for the keyring: exit status %d\n%s", what, status, stderr)
		case <-time.After(time.Minute):
			t.Fatalf("%s: it does not ask for the keyring", what)
		}
		stop()
		select {
		case status := <-ended:
			if status != exitOK {
				t.Errorf("%s: exit status %d", what, status)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: it has not ended", what)
		}
		_ = asked.Close() // the next one asks when this one has no answer any more
	}
}
