//go:build unix

package tests

import (
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// alive returns how many of the processes are there whose ids a fixture has
// noted in a file.
func alive(t testing.TB, file string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(harness.ReadFile(t, file)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			n++
		}
	}
	return n
}

// processesGone reports whether none of them is.
func processesGone(t testing.TB, file string) bool { return alive(t, file) == 0 }

// TestServeIdle: LI30. A Streamable HTTP session that nobody uses ends, and its
// process with it. An open stream is use, and the other transports have one.
func TestServeIdle(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	s := serve(t, append([]string{"--session-timeout", "300ms"}, hurry...), "-pids", pids).site()
	open := func() *httpTalker {
		var c talker
		harness.WaitUntil(t, "a handshake in time", func() bool { // 404 where this machine took longer than the session lasts
			var err error
			c, err = s.open(t.Context(), "mcp")
			if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusNotFound {
				return false
			}
			bridgetest.Must(t, err)
			return true
		})
		t.Cleanup(c.close)
		return c.(*httpTalker)
	}
	idle := open()
	harness.WaitUntil(t, "the idle session's process to end", func() bool { return alive(t, pids) == 0 })
	if resp := s.ask(t, http.MethodPost, "/mcp", ping, idle.headers()); resp.status != http.StatusNotFound {
		t.Errorf("a session that was idle for too long: %v, want 404", resp)
	}
	var busy *httpTalker
	var get *http.Response
	harness.WaitUntil(t, "a session that is in use in time", func() bool { // 404 where this machine took longer than the session lasts
		busy = open()
		var err error
		if get, err = s.request(t.Context(), http.MethodGet, "/mcp", "", busy.headers()); err != nil {
			t.Fatal(err)
		}
		if get.StatusCode != http.StatusOK {
			get.Body.Close()
		}
		return get.StatusCode != http.StatusNotFound
	})
	if get.StatusCode != http.StatusOK {
		t.Fatalf("GET: %v", get)
	}
	defer get.Body.Close()
	event, socket := s.mustOpen(t, "sse"), s.mustOpen(t, "ws")
	// Another session comes, is idle, and goes: so much time has passed.
	open()
	harness.WaitUntil(t, "another idle session's process to end", func() bool { return alive(t, pids) == 3 })
	for _, c := range []talker{busy, event, socket} {
		mustAnswer(t, c, ping)
	}
}
