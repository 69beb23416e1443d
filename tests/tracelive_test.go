package tests

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/inspect"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// running returns the bridge with a process id, once it can be looked at.
func running(t *testing.T, pid int) (it inspect.RunningBridge) {
	t.Helper()
	harness.WaitUntil(t, "the control socket", func() bool {
		all, err := inspect.List(t.Context())
		bridgetest.Must(t, err)
		for _, b := range all {
			if b.PID == pid {
				it = b
				return true
			}
		}
		return false
	})
	return it
}

// awaitCalls waits until a bridge has calls in progress, and returns how many requests of its only session wait, 0
// where it has none.
func awaitCalls(t *testing.T, b inspect.RunningBridge, n int) (waiting int) {
	t.Helper()
	get := func(path string, to any) {
		resp, err := b.Get(t.Context(), path)
		bridgetest.Must(t, err)
		defer resp.Body.Close()
		bridgetest.Must(t, json.NewDecoder(resp.Body).Decode(to))
	}
	harness.WaitUntil(t, "the calls", func() bool {
		var now struct{ Servers []inspect.Server }
		get("servers", &now)
		return now.Servers[0].Calls == n
	})
	var now struct{ Sessions []struct{ Waiting int } }
	if get("sessions", &now); len(now.Sessions) > 0 {
		waiting = now.Sessions[0].Waiting
	}
	return waiting
}

// cancelCall cancels a call of a session by the API of a bridge.
func cancelCall(t *testing.T, pid int, session, id string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "mcp-bridge", strconv.Itoa(pid)+".sock"))
	}}}
	resp, err := client.Post("http://bridge/api/v1/sessions/"+session+"/cancel", "application/json", strings.NewReader(id))
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Errorf("%s cannot be cancelled: status %d", id, resp.StatusCode)
	}
}

// Who attaches to a bridge sees what has waited before, and its end.
func TestTraceOfWhatWaits(t *testing.T) {
	t.Parallel()
	p := start(t, nil, bridgeBin, "connect", "--", bridgeBin, "demo")
	p.send(initialize("2025-06-18"))
	p.line()
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.send(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"slow","arguments":{"seconds":3600}}}`)
	if n := awaitCalls(t, running(t, p.Cmd.Process.Pid), 1); n != 1 {
		t.Errorf("%d requests of the session wait", n)
	}
	viewer := start(t, nil, bridgeBin, "trace", strconv.Itoa(p.Cmd.Process.Pid), "status:pending", "status:-32603")
	if line := viewer.line(); !regexp.MustCompile(` s1  →\|    tools/call #"w" no answer for \S+ \(began before this trace: only this end of it is known\)$`).MatchString(line) {
		t.Errorf("the first line is %q", line)
	}
	cancelCall(t, p.Cmd.Process.Pid, "s1", `{"id":"w"}`)
	if line := viewer.line(); !regexp.MustCompile(` s1  ←\|    tools/call #"w" error -32603 \S+ \d+ B$`).MatchString(line) {
		t.Errorf("the next line is %q", line)
	}
}

// A request of 2026-07-28 has no session that is kept; it gets a name when somebody looks, by which it can be cancelled.
func TestTraceOfModernWaiting(t *testing.T) {
	t.Parallel()
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--demo")
	answered := make(chan int)
	go func() {
		resp, err := s.site().request(t.Context(), "POST", "/mcp", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":3600},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			http.Header{"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"slow"}})
		if err != nil {
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	awaitCalls(t, running(t, s.Cmd.Process.Pid), 1)
	viewer := start(t, nil, bridgeBin, "trace", strconv.Itoa(s.Cmd.Process.Pid), "method:tools/call", "hop:down")
	found := regexp.MustCompile(` (q\d+)  →\|    tools/call #3 no answer for \S+ \(began before this trace: only this end of it is known\)$`).FindStringSubmatch(viewer.line())
	if found == nil {
		t.Fatal("the first line is another")
	}
	cancelCall(t, s.Cmd.Process.Pid, found[1], `{"id":3}`)
	if line := viewer.line(); !regexp.MustCompile(` ` + found[1] + `  →\|    note over tools/call #3 for \S+: the request is answered or cancelled`).MatchString(line) {
		t.Errorf("the next line is %q", line)
	}
	if status := <-answered; status == 0 {
		t.Error("the request has no answer")
	}
}
