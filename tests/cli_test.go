package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestQuickStart: what stands at the top of the README: serve --demo, and a
// client that lists and calls tools.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	c := serveArgv(t, nil, bridgeBin, "serve", "--demo", "--listen", "127.0.0.1:0").open("2025-11-25")
	if got := c.answer(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(got, `"name":"echo"`) {
		t.Errorf("tools/list: %.300s", got)
	}
	got := c.answer(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}`)
	if !strings.Contains(got, "42") {
		t.Errorf("tools/call: %.300s", got)
	}
}

// TestHealth: /healthz tells that the process lives; /readyz that a server can
// be started, and not when it no longer can.
func TestHealth(t *testing.T) {
	t.Parallel()
	// The server is a copy of the fixture, so that it can be taken away.
	command := filepath.Join(t.TempDir(), "server")
	copyFile(t, childBin, command)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", command)
	status := func(path string) int {
		resp, err := s.client.Get(strings.TrimSuffix(s.url, "/mcp") + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := status(path); got != http.StatusOK {
			t.Errorf("%s: status %d, want 200", path, got)
		}
	}
	s.open("2025-11-25").end() // the child that the bridge started to see whether it can
	removeFile(t, command)
	resp := s.do(t.Context(), http.MethodPost, initialize("2025-11-25"), nil)
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if strings.Contains(string(body), `"result"`) || strings.Contains(string(body), filepath.Dir(command)) {
		t.Errorf("initialize without a server: status %d, %s", resp.StatusCode, body)
	}
	// The last child may still be on its way out, and counts as running.
	harness.WaitUntil(t, "/readyz to be 503", func() bool { return status("/readyz") == http.StatusServiceUnavailable })
	if got := status("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz when the server cannot be started: status %d, want 200", got)
	}
}

// TestStdoutIsForMessages: ST3. With everything logged, as text or as JSON,
// stdout of connect carries messages and nothing else; a JSON log is JSON.
func TestStdoutIsForMessages(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			p := start(t, nil, bridgeBin, "connect", "--log-level", "trace", "--log-format", format, u.URL)
			p.handshake("2025-11-25")
			p.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
			if got, want := p.line(), `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			p.Stdin.Close()
			if rest, err := io.ReadAll(p.stdout); err != nil || len(rest) > 0 {
				t.Errorf("stdout also has %q (%v)", rest, err)
			}
			p.wait()
			if p.Log() == "" {
				t.Error("nothing was logged: this proves nothing")
			}
			for line := range strings.Lines(p.Log()) {
				if format == "json" && !json.Valid([]byte(line)) {
					t.Errorf("the JSON log has the line %q", line)
				}
			}
		})
	}
}

// Where several bridges run, trace lists them with the addresses that clients use, by which one tells them apart.
func TestTraceListsAddresses(t *testing.T) {
	dir := t.TempDir()
	env := []string{"XDG_RUNTIME_DIR=" + dir}
	socket := filepath.Join(dir, "s")
	first := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--listen", "unix:"+socket, "--demo")
	second := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--path-prefix", "/tools", "--demo")
	status, _, stderr := runBridge(t, env, "trace")
	for _, want := range []string{
		fmt.Sprintf("\n  %-8d serve (demo) at %s, unix:%s\n", first.Cmd.Process.Pid, first.url, socket),
		fmt.Sprintf("\n  %-8d serve (demo) at %s\n", second.Cmd.Process.Pid, second.url),
	} {
		if status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("status %d, want a line %q in\n%s", status, want, stderr)
		}
	}
}
