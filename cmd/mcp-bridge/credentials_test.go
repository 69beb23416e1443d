package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A watched is written to, and ends the run when it has a text.
type watched struct {
	mu    sync.Mutex
	text  bytes.Buffer
	until string
	stop  func()
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(b)
	if strings.Contains(w.text.String(), w.until) {
		w.stop()
	}
	return len(b), nil
}

// The credential of who runs serve is not for everybody on the network: an address that other machines reach is refused where nobody is
// authenticated, with the flags that help; --insecure is warned of. On this machine, and with tokens, nothing is said.
func TestServeOwnCredential(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	bridgetest.Must(t, os.WriteFile(tokens, []byte("ann 0123456789abcdef0123456789abcdef\n"), 0o600))
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"mcpServers":{"a":{"url":"http://127.0.0.1:1/mcp"}}}`), 0o600))
	const warning = "with your credential"
	for _, server := range []string{"http://127.0.0.1:1/mcp", "--config=" + file} {
		for _, one := range []struct {
			listen string
			more   []string
			status int
			warned bool
		}{
			{"127.0.0.1:0", nil, exitOK, false},
			{"0.0.0.0:0", nil, exitUsage, false},
			{"0.0.0.0:0", []string{"--token-file", tokens}, exitOK, false},
			{"0.0.0.0:0", []string{"--insecure"}, exitOK, true},
			{"0.0.0.0:0", []string{"--insecure", "--token-file", tokens}, exitOK, false},
			{"0.0.0.0:0", []string{"--insecure", "--auth", "none"}, exitOK, server != "http://127.0.0.1:1/mcp"}, // a file says it for each server
			{"127.0.0.1:0", []string{"--insecure"}, exitOK, false},
		} {
			ctx, stop := context.WithCancel(t.Context())
			log := &watched{until: "listening", stop: stop}
			args := append([]string{"serve", "--listen", one.listen, "--auth-dir", filepath.Join(t.TempDir(), "auth"), server}, one.more...)
			status := run(ctx, args, environment{stdin: os.Stdin, stdout: os.Stdout, stderr: log, lookup: func(string) (string, bool) { return "", false }})
			stop()
			text := log.text.String()
			if status != one.status || strings.Contains(text, warning) != one.warned {
				t.Errorf("%q: status %d, log %s", args, status, text)
			}
			if status == exitUsage && (!strings.Contains(text, "--token-file") || !strings.Contains(text, "--insecure")) {
				t.Errorf("%q does not say what helps: %s", args, text)
			}
		}
	}
}
