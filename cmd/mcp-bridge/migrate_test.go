package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
)

// What users of other bridges type is accepted, or answered with what to write instead.
func TestForeignLines(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string // on stderr
	}{
		{[]string{"--stdio", "npx -y server ./folder", "--outputTransport", "streamableHttp", "--port", "8000"}, "write mcp-bridge serve --port 8000 -- npx -y server ./folder"},
		{[]string{"--stdio", "X=1 uvx x | tee y", "--header", "A: b"}, "write mcp-bridge serve --port 8000 -- sh -c 'X=1 uvx x | tee y'\nNot carried over: --header ("},
		{[]string{"npx", "-y", "supergateway", "--stdio", "uvx mcp-server-git", "--ssePath", "/events"}, "-- uvx mcp-server-git\nNot carried over: --ssePath (HTTP+SSE is at /sse;"},
		{[]string{"npx", "-y", "mcp-remote", "https://host.example/mcp", "3334", "--bogus"}, "mcp-remote is another program; write mcp-bridge connect --redirect-port 3334 https://host.example/mcp\nNot carried over: --bogus ("},
		{[]string{"npx", "mcp-remote", "--debug"}, `mcp-remote is another program; write mcp-bridge and only what follows "mcp-remote"`},
		{[]string{"--stdio", "x", "--cors"}, "Not carried over: --cors (supergateway lets web pages in from everywhere"},
		{[]string{"serve", "--", "npx", "mcp-proxy", "--port", "8080", "--", "tsx", "server.js"}, "does not speak MCP on its stdout; write mcp-bridge serve --port 8080 -- tsx server.js"},
		{[]string{"--", "npx", "-y", "supergateway", "--stdio", "uvx mcp-server-git"}, "write mcp-bridge serve --port 8000 -- uvx mcp-server-git"},
		{[]string{"connect", "--", "websocketd", "--port=1", "cat"}, "write mcp-bridge serve --port 1 -- cat"},
		{[]string{"npx", "@modelcontextprotocol/inspector", "node", "x.js"}, "the MCP inspector is another program; write mcp-bridge doctor -- node x.js"},
		{[]string{"--sse", "https://host.example/sse"}, "write mcp-bridge connect https://host.example/sse"},
		{[]string{"--port=8080", "uvx", "mcp-server-fetch"}, `write mcp-bridge serve and the same arguments, with "--" in front of "uvx"`},
		{[]string{"--port", "8080", "https://host.example/mcp"}, "write mcp-bridge serve and the same arguments"},
		{[]string{"-H", "Authorization", "Bearer x", "https://host.example/mcp"}, `write -H "Authorization: VALUE"`},
		{[]string{"serve", "-e", "FOO", "bar", "--", "cat"}, "write -e FOO=bar"},
		{[]string{"serve", "--sessionTimeout", "60000", "--", "cat"}, "such as 30s"},
		{[]string{"host.example:8080/mcp"}, "write http://host.example:8080/mcp or https://host.example:8080/mcp"},
		{[]string{"https://host.example/mcp", "3334"}, "write --redirect-port 3334"},
		{[]string{"https://host.example/mcp", "3334", "--host", "localhost"}, "write --redirect-host HOST, and --redirect-port 3334"},
		{[]string{"--host", "0.0.0.0", "--port", "8080", "--named-server", "fetch", "uvx mcp-server-fetch"}, "mcp-bridge serve --config servers.json"},
		{[]string{"serve", "--listen", "127.0.0.1:0", "missing.json"}, "missing.json: no such file"},
		{[]string{"connect", "missing.json", "memory"}, "missing.json: no such file"},
		{[]string{"--sse", "https://host.example/sse", "--oauth2Bearer", "hush"}, "Put the token into the environment variable TOKEN."},
		{[]string{"mcp-proxy", "--port", "8080", "--named-server", "fetch", "uvx mcp-server-fetch"}, "write mcp-bridge serve --port 8080 --config servers.json\nNot carried over: --named-server (write fetch into"},
		{[]string{"supergateway", "--stdio", "uvx mcp-server-git"}, "supergateway is another program; write mcp-bridge serve --port 8000 -- uvx mcp-server-git"},
		{[]string{"mcp-remote@latest", "https://host.example/mcp"}, "mcp-remote is another program; write mcp-bridge connect https://host.example/mcp"},
		{[]string{"serve", "--server", "sse", "--apiKey", "hush", "--stateless", "--port", "9", "--", "cat", "a b"},
			"--server, --apiKey and --stateless are flags of mcp-proxy; write mcp-bridge serve --isolation request --port 9 -- cat 'a b'\nNot carried over: --server ("},
		{[]string{"--port", "8080", "--shell", "--apiKey=hush", "cat | tee x"}, "--shell and --apiKey are flags of mcp-proxy; write mcp-bridge serve --port 8080 -- sh -c 'cat | tee x'\nNot carried over: --apiKey ("},
		{[]string{"https://host.example/mcp", "--auth-timeout", "60", "--debug"}, "write mcp-bridge connect --auth-wait 60s --debug https://host.example/mcp\n"},
		{[]string{"serve", "--sse-port", "9", "-e", "A", "hush", "-H", "X: hush", "--inspect=127.0.0.1:9", "--", "cat"}, "write mcp-bridge serve --port 9 --env A=... --header 'X: ...' --inspect=127.0.0.1:9 -- cat\n"},
		{[]string{"serve", "--sse-port", "9", "--bogus", "hush", "--sslCa", "f"}, "--sse-port and --sslCa are flags of mcp-proxy:\n--sse-port: write --port N\n--sslCa: leave it out: mcp-proxy asks no client for a certificate; --tls-client-ca FILE does\n"},
		{[]string{"serve", "--config", "s.json", "--pass-environment"}, "with --config, write --pass-env all"},
		{[]string{"npx", "mcp-proxy", "--host", "0.0.0.0", "--port", "8080", "--", "cat"}, "write mcp-bridge serve --host 0.0.0.0 --port 8080 --token-file tokens -- cat\nOther machines reach this address"},
		{[]string{"serve", "--listen", ":8080", "--server", "sse", "--", "cat"}, "write mcp-bridge serve --listen :8080 --token-file tokens -- cat\nNot"},
		{[]string{"serve", "--listen", ":8080", "--insecure", "--server", "sse", "--", "cat"}, "write mcp-bridge serve --listen :8080 --insecure -- cat\nNot"},
		{[]string{"serve", "--connectionTimeout", "60000", "--auth-timeout=9", "https://host.example/mcp"}, "write mcp-bridge serve --connect-timeout 60s --auth-wait 9s https://host.example/mcp\n"},
		{[]string{"docker", "run", "-i", "-p", "8001:8000", "supercorp/supergateway", "--stdio", "uvx mcp-server-git"}, "write mcp-bridge serve --port 8001 -- uvx mcp-server-git"},
		{[]string{"node", "-e", `f("a b")`}, `write: mcp-bridge -- node -e 'f("a b")'`},
		{[]string{"serve", "node", "-e", `f("a b")`}, `mcp-bridge serve -- node -e 'f("a b")'`},
		{[]string{"serve", "npx", "-y", "a b"}, `mcp-bridge serve -- npx -y 'a b'`},
		{[]string{"connect", "node", "a b"}, `mcp-bridge connect -- node 'a b'`},
		{[]string{"serve", "--listen", "127.0.0.1:0", "--transport", "bogus", "--", "cat"}, "http-first, sse-first, http-only, sse-only"},
		{[]string{"validate-config", "x"}, "the commands are serve, connect"},
	} {
		status, out, errs := try(t, test.args...)
		if status != exitUsage || out != "" || strings.Contains(errs, "hush") || !strings.Contains(errs, test.says) {
			t.Errorf("%q: status %d, stdout %q, stderr %q; want %q", test.args, status, out, errs, test.says)
		}
		// Who is told the whole line to write needs no manual.
		if answered, manual := regexp.MustCompile(`(another program|its stdout|flags? of \S+); write mcp-bridge (serve|connect|doctor) (--|http)`).MatchString(errs), strings.Contains(errs, "for the manual"); answered && manual {
			t.Errorf("%q: stderr %q", test.args, errs)
		}
		t.Logf("%q: %s", test.args, errs)
	}
	if _, _, errs := try(t, "connect", "https://host.example/mcp", "-H", "Authorization: Bearer hush", "--port", "80"); strings.Contains(errs, "hush") {
		t.Errorf("stderr has the credential: %q", errs)
	}
	for command, want := range map[string]string{ // it works, if there is such a program
		"serve":   "write=\"mcp-bridge serve https://...@host.example/mcp\"",
		"connect": "write=\"mcp-bridge connect https://...@host.example/mcp\"",
	} {
		if _, _, errs := try(t, command, "--", "mcp-remote@0.0.0", "https://me:hush@host.example/mcp"); !strings.Contains(errs, want) || strings.Count(errs, "hush") > 0 {
			t.Errorf("%s: stderr %q; want %q", command, errs, want)
		}
	}
	for _, args := range [][]string{
		{"connect", "-H", "X: y", "--debug", "--allow-http", "--enable-proxy", "--transport", "sse", "localhost:1/sse"},
		{"connect", "unix:///nowhere/server.sock"},
		{"127.0.0.1:1/mcp", "--silent", "--transport", "streamableHttp", "--connectTimeout", "1s", "--ignoreTool", "x*"},
	} {
		if status, _, errs := try(t, args...); status != exitOK { // the client has gone at once
			t.Errorf("%q: status %d, stderr %q", args, status, errs)
		}
	}
}

// No advice names a flag or a command that is not there.
func TestAdviceIsRight(t *testing.T) {
	var known []string
	for _, command := range commandNames() {
		known = append(known, flagsOf(command)...)
	}
	for _, name := range migrate.FlagNames() {
		advice, _ := migrate.FlagAdvice(name)
		_, advice, _ = strings.Cut(advice, ": ") // behind the name of the flag itself
		for _, m := range regexp.MustCompile(`--([a-z][a-z-]*)|mcp-bridge ([a-z-]+)`).FindAllStringSubmatch(advice, -1) {
			if m[1] != "" && !slices.Contains(known, m[1]) || m[2] != "" && !slices.Contains(commandNames(), m[2]) {
				t.Errorf("--%s: the advice %q names %s, which mcp-bridge does not have", name, advice, m[0])
			}
		}
	}
}
