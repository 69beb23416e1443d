package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// browse is a browser that notes what it opens, and follows redirects.
func browse(note, addr string) {
	f, err := os.OpenFile(note, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, addr)
	}
	if err == nil {
		err = f.Close()
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.Get(addr)
	}
	if err == nil {
		err = resp.Body.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// signInLine is what the log says where a person is to sign in.
var signInLine = regexp.MustCompile(`sign in: open this address`)

// Five bridges start at the same time, and the one that has opened the browser is killed: there is one browser, one authorization
// request, and the other four work once the person has signed in. A bridge that starts later just works. No process is left.
func TestFiveColdStarts(t *testing.T) {
	t.Parallel()
	server, dir := authtest.New(t), t.TempDir()
	approve := server.HoldAuthorization()
	opened := filepath.Join(dir, "opened")
	env := []string{"BROWSER=" + os.Args[0] + " browse " + opened + " %s", "MCP_BRIDGE_AUTH_DIR=" + filepath.Join(dir, "auth")}
	connect := func() *proc { return start(t, env, bridgeBin, "connect", server.URL) }
	first := connect()
	first.send(initialize("2025-11-25"))
	first.waitLog(signInLine)
	var others []*proc
	for range 4 {
		p := connect()
		p.send(initialize("2025-11-25"))
		others = append(others, p)
	}
	for _, p := range others {
		p.waitLog(signInLine)
	}
	bridgetest.Must(t, first.Cmd.Process.Kill())
	var known []struct{ SignIn struct{ PID int } }
	report := start(t, env, bridgeBin, "status", "--json", server.URL)
	status := report.wait() // it writes little
	bridgetest.Must(t, json.NewDecoder(report.Stdout).Decode(&known))
	if status != 3 || len(known) != 1 || known[0].SignIn.PID == 0 {
		t.Fatalf("status %d: %+v", status, known)
	}
	approve()
	works := func(p *proc) {
		t.Helper()
		if line := p.line(); !strings.Contains(line, `"authtest"`) {
			t.Errorf("the answer is %s", line)
		}
		if log := p.Log(); strings.Contains(log, "canary") || strings.Count(log, "sign in: open") > 1 {
			t.Errorf("the log is %s", log)
		}
		p.Stdin.Close()
		p.wait()
	}
	for _, p := range others {
		works(p)
	}
	late := connect()
	late.send(initialize("2025-11-25"))
	works(late)
	text, err := os.ReadFile(opened)
	bridgetest.Must(t, err)
	if lines := strings.Count(string(text), "\n"); lines != 1 || server.CountRequests("/authorize") != 1 {
		t.Errorf("%d browsers, %d authorization requests", lines, server.CountRequests("/authorize"))
	}
	gone := time.Now()
	if runtime.GOOS == "linux" { // a process that nobody has waited for has no command line any more
		harness.WaitUntil(t, "the end of the process that has signed in", func() bool {
			return harness.ReadFile(t, fmt.Sprintf("/proc/%d/cmdline", known[0].SignIn.PID)) == ""
		})
		t.Logf("nothing is left running %v after the last client has gone", time.Since(gone).Round(time.Millisecond))
	}
}
