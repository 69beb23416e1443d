package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
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

// What passes between a client and its server is looked at for a sign-in only where the client can be asked to show one.
func TestClientAsked(t *testing.T) {
	const url = "http://127.0.0.1:1/mcp"
	for name, one := range map[string]struct {
		browser string
		serve   bool
		s       signin.Settings
		spec    upstream.Spec
		want    bool
	}{
		"no browser":      {s: signin.Settings{NoBrowser: true}, want: true},
		"a browser":       {browser: "a-browser"},
		"only errors":     {s: signin.Settings{NoBrowser: true, Prompt: signin.PromptError}},
		"--auth none":     {s: signin.Settings{NoBrowser: true, Mode: signin.ModeNone}},
		"no person":       {s: signin.Settings{NoBrowser: true, Mode: signin.ModeClientCredentials, Client: signin.Client{ID: "x", Secret: tokenstore.NewSecret("y")}}},
		"many clients":    {serve: true, s: signin.Settings{NoBrowser: true}},
		"a command":       {s: signin.Settings{NoBrowser: true}, spec: upstream.Spec{Command: supervisor.Spec{Path: "x"}}},
		"own credentials": {s: signin.Settings{NoBrowser: true}, spec: upstream.Spec{URL: "http://u:p@127.0.0.1:1/mcp"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BROWSER", one.browser)
			c := credentials{mayAskClient: !one.serve}
			defer c.close()
			one.s.Server, one.s.StoreDir = url, filepath.Join(t.TempDir(), "auth")
			if one.spec.URL == "" && one.spec.Command.Path == "" {
				one.spec.URL = url
			}
			bridgetest.Must(t, c.attach(t.Context(), &one.spec, one.s, hclog.NewNullLogger()))
			if asked := c.clientElicitor() != nil; asked != one.want {
				t.Errorf("is asked: %v", asked)
			}
		})
	}
}
