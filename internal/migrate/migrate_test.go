package migrate_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
)

// The lines are those of supergateway's manual, and what people write with them.
func TestLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string // "": no line of another program
	}{
		{[]string{"--stdio", "npx -y @modelcontextprotocol/server-filesystem ./folder", "--outputTransport", "streamableHttp", "--port", "8001"},
			"mcp-bridge serve --port 8001 -- npx -y @modelcontextprotocol/server-filesystem ./folder"},
		{[]string{"--stdio", "uvx mcp-server-git"}, "mcp-bridge serve --port 8000 -- uvx mcp-server-git"},
		{[]string{"--outputTransport=ws", "--stdio=node x.js"}, "mcp-bridge serve --port 8000 -- node x.js"},
		{[]string{"--port", "1", "--stdio", `sh -c "echo 'a b'" x`, "--cors", "--healthEndpoint", "/h"}, `mcp-bridge serve --port 1 --allow-origin https://app.example -- sh -c 'echo a b' x`},
		{[]string{"--stdio", "x", "--cors", "https://app.example", "--sessionTimeout", "60000", "--logLevel", "none", "--stateful"},
			"mcp-bridge serve --port 8000 --allow-origin https://app.example --session-timeout 60s --log-level off -- x"},
		{[]string{"--sse", "https://host/sse"}, "mcp-bridge connect https://host/sse"},
		{[]string{"--streamableHttp", "https://host/mcp?a=b&c"}, "mcp-bridge connect 'https://host/mcp?...'"},
		{[]string{"--sse", "https://me:secret@host/mcp"}, "mcp-bridge connect https://host/mcp"},
		{[]string{"--stdio", "srv --api-key=abc --token abc --keep x -k y TOKEN=abc"}, "mcp-bridge serve --port 8000 -- srv --api-key=... --token ... --keep x -k y TOKEN=..."},
		{[]string{"--sse", "https://host/sse", "--outputTransport", "streamableHttp"}, "mcp-bridge serve --port 8000 https://host/sse"},
		{[]string{"--sse", "https://host/sse", "--header", "X-User: jane", "--oauth2Bearer", "secret"},
			"mcp-bridge connect --header 'X-User: ...' --header 'Authorization: Bearer ${TOKEN}' https://host/sse"},
		{[]string{"--stdio", "X=1 uvx x | tee y"}, "mcp-bridge serve --port 8000 -- sh -c 'X=1 uvx x | tee y'"},
		{[]string{"--stdio", "API_KEY='a b' uvx x --token abc;echo"}, "mcp-bridge serve --port 8000 -- sh -c 'API_KEY=... uvx x --token ...;echo'"},
		{[]string{"--stdio", `node x.js "$HOME"`}, `mcp-bridge serve --port 8000 -- sh -c 'node x.js "$HOME"'`},
		{[]string{"--stdio", "cd /srv && node x.js"}, "mcp-bridge serve --port 8000 -- sh -c 'cd /srv && node x.js'"},
		{[]string{"--stdio", "node x.js 2>'my log' 3>x"}, `mcp-bridge serve --port 8000 -- sh -c 'node x.js 2>'\''my log'\'' 3>x'`},
		{[]string{"--stdio", "npx server ~/files"}, "mcp-bridge serve --port 8000 -- sh -c 'npx server ~/files'"},
		{[]string{"--stdio", `node x.js --filter 'a|$b' "c & d"`}, `mcp-bridge serve --port 8000 -- node x.js --filter 'a|$b' 'c & d'`},
		{[]string{"--stdio", "node x.js", "--header", "X-User: jane", "--oauth2Bearer", "secret"}, "mcp-bridge serve --port 8000 -- node x.js"},
		{[]string{"--sse", "https://host/sse", "--cors", "--sessionTimeout", "60000"}, "mcp-bridge connect https://host/sse"},
		{[]string{"--port", "8080", "https://host/mcp"}, ""},
		{[]string{"--stdio"}, ""},
		{nil, ""},
	} {
		line, program, ok := migrate.Line(test.args)
		if line != test.want || ok != (test.want != "") || ok != (program != "") {
			t.Errorf("%q: %q of %q, %v; want %q", test.args, line, program, ok, test.want)
		}
		t.Logf("%q: %s", test.args, line)
	}
}

// A name is known however it is spelled, and what is not another program's is not.
func TestFlag(t *testing.T) {
	for _, name := range []string{"apiKey", "api-key", "apikey", "sslCert", "ssl-cert", "disable-resource-parameter"} {
		if advice, ok := migrate.Flag(name); !ok || !strings.Contains(advice, "write --") {
			t.Errorf("--%s: %q, %v", name, advice, ok)
		}
	}
	for _, name := range []string{"", "nonsense", "port"} {
		if advice, ok := migrate.Flag(name); ok {
			t.Errorf("--%s: %q", name, advice)
		}
	}
	seen := map[string]bool{}
	for _, name := range migrate.Flags() {
		plain := strings.ToLower(strings.ReplaceAll(name, "-", ""))
		if seen[plain] {
			t.Errorf("--%s is there twice", name)
		}
		seen[plain] = true
		advice, _ := migrate.Flag(name)
		t.Logf("--%s: %s", name, advice)
	}
}
