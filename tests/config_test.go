package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// configFile writes a configuration.
func configFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, text)
	return file
}

// TestCheckConfig: a good file is status 0, whatever form it has; every mistake
// of a bad one is named at once, with file, line and column, and status 2. No
// value that could be a secret is repeated.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	good := configFile(t, `// comments and trailing commas are fine
{
	"servers": {
		"a": { "command": `+quote(childBin)+`, "args": ["${SET}", "${UNSET:-default}"], "env": { "N": 1.50 }, },
		"b c": { "type": "sse", "serverUrl": "https://host.example/${SET}", "headers": { "Authorization": "Bearer ${SET}" } },
		"off": { "command": "no-such-command", "disabled": true },
	}, /* and so on */
}`)
	status, out, errs := runBridge(t, []string{"SET=s3cret"}, "check-config", good)
	if status != 0 || !strings.Contains(out, "no mistake found") || strings.Contains(out+errs, "s3cret") {
		t.Errorf("a good file: exit status %d, stdout %q, stderr %q", status, out, errs)
	}

	bad := configFile(t, `{
	"mcpServers": {
		"typo": { "comand": "x", "args": [] },
		"type": { "command": "x", "args": "s3cret" },
		"var": { "command": "x", "env": { "A": "s3cret ${NOT_SET}" } },
		"both": { "command": "x", "url": "http://user:s3cret@host.example/" },
		"duration": { "command": "x", "mcp-bridge": { "queueTimeout": "10 parsecs" } },
		"key": { "command": "x", "mcp-bridge": { "ignoreTool": ["s3cret"] } },
		"a/b": { "command": "x" }
	}
}`)
	status, out, errs = runBridge(t, nil, "check-config", bad)
	if status != 2 || out != "" || strings.Contains(errs, "s3cret") {
		t.Errorf("a bad file: exit status %d, stdout %q, stderr %q", status, out, errs)
	}
	for line, words := range map[int][]string{
		3: {"comand", "command"}, 4: {"args"}, 5: {"NOT_SET"}, 6: {"command", "url"}, 7: {"queueTimeout"}, 8: {"ignoreTool", "ignoreTools"}, 9: {"a/b"},
	} {
		m := regexp.MustCompile(fmt.Sprintf(`(?m)%s:%d:\d+: (.*)$`, regexp.QuoteMeta(bad), line)).FindStringSubmatch(errs)
		if m == nil {
			t.Errorf("nothing is said about line %d: %s", line, errs)
			continue
		}
		for _, word := range words {
			if !strings.Contains(m[1], word) {
				t.Errorf("about line %d is said %q, want it to name %q", line, m[1], word)
			}
		}
	}
	for name, c := range map[string]struct {
		text, want string
		status     int
	}{
		"no JSON":      {"{\n\"mcpServers\": {\n]", ":3:1:", 2},
		"twice":        {"{\"mcpServers\": {\n\"a\": {\"command\":\"x\"},\n\"a\": {\"command\":\"x\"}}}", ":3:", 2},
		"empty":        {"", ":1:1:", 2},
		"no servers":   {`{"mcpserver": {}}`, "mcpServers", 2},
		"no command":   {`{"mcpServers": {"lost": {"command": "/no/such/command"}}}`, "lost", 1},
		"glob":         {`{"mcpServers": {"a": {"command": "x", "mcp-bridge": {"ignoreTools": ["["]}}}}`, ":1:", 2},
		"foreign":      {`{"mcpServers": {"a": {"url": "ftp://host.example/"}}}`, ":1:", 2},
		"missing file": {`{"mcpServers": {"a": {"command": "x", "envFile": "/no/such/file"}}}`, "/no/such/file", 2},
	} {
		file := configFile(t, c.text)
		status, _, errs := runBridge(t, nil, "check-config", file)
		if status != c.status || !strings.Contains(errs, c.want) || !strings.Contains(errs, file) {
			t.Errorf("%s: exit status %d, want %d, and stderr should say %q: %s", name, status, c.status, c.want, errs)
		}
		if name == "no command" {
			continue // serve would find out with the first client
		}
		if status, _, errs := runBridge(t, nil, "serve", "--listen", "127.0.0.1:0", "--config", file); status != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("serve, %s: exit status %d, want 2, and stderr should say %q: %s", name, status, c.want, errs)
		}
	}
	if status, _, errs := runBridge(t, nil, "check-config", filepath.Join(t.TempDir(), "none.json")); status != 2 || !strings.Contains(errs, "none.json") {
		t.Errorf("a file that is not there: exit status %d, %s", status, errs)
	}
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
