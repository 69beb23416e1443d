package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// runBridge runs the bridge to its end and returns exit status and output.
func runBridge(t testing.TB, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bridgeBin, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	harness.Keep(fmt.Sprintf("output of %q", args), out.String()+errs.String())
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// configFile writes a configuration.
func configFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, text)
	return file
}

// TestServeConfig: the servers of a file are each at their own path, and listed;
// a process runs only for those that somebody uses; one that is disabled or
// was never there is 404.
func TestServeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pids := func(name string) string { return filepath.Join(dir, name) }
	remote := newUpstream(t)
	writeFile(t, filepath.Join(dir, "vars"), "# variables\nFROM_FILE=file\nBOTH=file\n")
	file := filepath.Join(dir, "servers.json")
	writeFile(t, file, fmt.Sprintf(`{ "mcpServers": {
		"lazy": { "command": %[1]s, "args": ["-pids", %[2]s], "description": "starts when it is used",
			"env": { "EXPANDED": "<${OUTER}>", "DEFAULT": "${UNSET:-d}", "BOTH": "env" }, "envFile": "vars", "cwd": "." },
		"eager": { "command": %[1]s, "args": ["-pids", %[3]s], "mcp-bridge": { "lazy": false } },
		"über alles": { "command": %[1]s },
		"remote": { "url": %[4]q },
		"off": { "command": %[1]s, "disabled": true },
	} }`, quote(childBin), quote(pids("lazy")), quote(pids("eager")), remote.URL))
	s := serveArgv(t, []string{"OUTER=outer", "FIXTURE_SECRET=x"}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", file)
	front := newSite(t, "http://"+s.host())

	waitFile(t, pids("eager"), func(s string) bool { return s != "" })
	if harness.ReadFile(t, pids("lazy")) != "" {
		t.Error("a server was started that nobody uses")
	}
	lazy := front.at("/servers/lazy").mustOpen(t, "mcp")
	if strings.Count(harness.ReadFile(t, pids("lazy")), "\n") != 1 {
		t.Errorf("with the first session there are the processes %q", harness.ReadFile(t, pids("lazy")))
	}
	for name, want := range map[string]string{
		"EXPANDED": `"value":"<outer>"`, "DEFAULT": `"value":"d"`, "BOTH": `"value":"env"`, "FROM_FILE": `"value":"file"`,
		"OUTER": `"set":false`, "FIXTURE_SECRET": `"set":false`, "PATH": `"set":true`,
	} {
		if got := mustAnswer(t, lazy, `{"jsonrpc":"2.0","id":1,"method":"env","params":{"text":"`+name+`"}}`); !strings.Contains(got, want) {
			t.Errorf("in the server's environment %s is %s, want %s", name, got, want)
		}
	}
	for _, name := range []string{"lazy", "eager", "%C3%BCber%20alles", "remote"} {
		for _, transport := range transports {
			c := front.at("/servers/"+name).mustOpen(t, transport)
			if got, want := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+tricky+`}`), `{"jsonrpc":"2.0","id":1,"result":`+tricky+`}`; got != want {
				t.Errorf("%s over %s: %s", name, transport, got)
			}
		}
	}
	for _, path := range []string{"/servers/off", "/servers/none", "/servers/LAZY", "", "/servers"} {
		for _, r := range []struct{ method, path, body string }{{"POST", "/mcp", initialize("2025-06-18")}, {"GET", "/sse", ""}, {"GET", "/ws", ""}} {
			if resp := front.ask(t, r.method, path+r.path, r.body, nil); resp.status != http.StatusNotFound {
				t.Errorf("%s %s: %v, want 404", r.method, path+r.path, resp)
			}
		}
	}
	index := front.ask(t, http.MethodGet, "/servers", "", nil)
	var list struct {
		Servers []struct {
			Name, Description string
			Endpoints         map[string]string
		}
	}
	if err := json.Unmarshal([]byte(index.body), &list); err != nil || index.status != http.StatusOK {
		t.Fatalf("/servers: %v (%v)", index, err)
	}
	var names []string
	for _, s := range list.Servers {
		names = append(names, s.Name)
		for _, transport := range transports {
			if s.Endpoints[transport] == "" {
				t.Errorf("/servers does not say where %s is over %s", s.Name, transport)
			}
		}
	}
	if got := strings.Join(names, ","); got != "lazy,eager,über alles,remote" || list.Servers[0].Description != "starts when it is used" {
		t.Errorf("/servers lists %s: %s", got, index.body)
	}
	for _, secret := range []string{"outer", childBin, remote.URL} {
		if strings.Contains(index.body, secret) {
			t.Errorf("/servers tells %q: %s", secret, index.body)
		}
	}
}

// TestConnectConfig: one server of a file as a stdio process. Mistakes of the
// others do not matter; a name that is not there is answered with those that are.
func TestConnectConfig(t *testing.T) {
	t.Parallel()
	remote := newUpstream(t)
	file := configFile(t, fmt.Sprintf(`{"mcpServers": {
		"local": {"command": %s, "env": {"A": "${SET}"}},
		"remote": {"url": %q, "headers": {"X-Key": "${SET}"}},
		"other": {"command": "${NOT_SET}", "envFile": "/no/such/file"}
	}}`, quote(childBin), remote.URL))
	for _, name := range []string{"local", "remote"} {
		p := start(t, []string{"SET=s3cret"}, bridgeBin, "connect", "--config", file, name)
		p.handshake("2025-11-25")
		p.send(`{"jsonrpc":"2.0","id":1,"method":"echo","params":` + tricky + `}`)
		if got, want := p.line(), `{"jsonrpc":"2.0","id":1,"result":`+tricky+`}`; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		if name == "local" {
			p.send(`{"jsonrpc":"2.0","id":2,"method":"env","params":{"text":"A"}}`)
			if got := p.line(); !strings.Contains(got, `"s3cret"`) {
				t.Errorf("the variable of the server's environment is %s", got)
			}
		}
		p.Stdin.Close()
		if code := p.wait(); code != 0 {
			t.Errorf("%s: exit status %d, want 0", name, code)
		}
		if strings.Contains(p.Log(), "s3cret") {
			t.Errorf("%s: the log tells a secret: %s", name, p.Log())
		}
	}
	if got := remote.saw()[0].header.Get("X-Key"); got != "s3cret" {
		t.Errorf("the server got the header X-Key: %q", got)
	}
	for name, want := range map[string]string{"locla": "local", "other": "NOT_SET"} {
		status, out, errs := runBridge(t, []string{"SET=s3cret"}, "connect", "--config", file, name)
		if status != 2 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("connect --config FILE %s: exit status %d, want 2, and stderr should say %q: %s", name, status, want, errs)
		}
	}
}
