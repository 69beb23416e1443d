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
		{[]string{"--port", "1", "--stdio", `sh -c "echo 'a b'" x`, "--cors", "--healthEndpoint", "/h"}, `mcp-bridge serve --port 1 -- sh -c 'echo '\''a b'\''' x`},
		{[]string{"--stdio", "x", "--cors", "https://app.example", "--sessionTimeout", "60000", "--logLevel", "none", "--stateful"},
			"mcp-bridge serve --port 8000 --allow-origin https://app.example --session-timeout 60s --log-level off -- x"},
		{[]string{"--sse", "https://host/sse"}, "mcp-bridge connect https://host/sse"},
		{[]string{"--streamableHttp", "https://host/mcp?a=b&c"}, "mcp-bridge connect 'https://host/mcp?a=...&...'"},
		{[]string{"--sse", "https://me:secret@host/mcp"}, "mcp-bridge connect https://...@host/mcp"},
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
		{[]string{"--stdio", `srv --header "Authorization: Bearer x" 'it''s' "a \"b\"" c\ d`}, `mcp-bridge serve --port 8000 -- srv --header 'Authorization: ...' its 'a "b"' 'c d'`},
		{[]string{"--stdio", `srv --header "Authorization: Bearer x" | tee y`}, `mcp-bridge serve --port 8000 -- sh -c 'srv --header '\''Authorization: ...'\'' | tee y'`},
		{[]string{"--stdio", "x", "--cors", "https://a.example", "https://b.example", "--sessionTimeout", "1500"},
			"mcp-bridge serve --port 8000 --allow-origin https://a.example --allow-origin https://b.example --session-timeout 1500ms -- x"},
		{[]string{"--port", "8080", "https://host/mcp"}, ""},
		{[]string{"--stdio"}, ""},
		{nil, ""},
	} {
		a, ok := migrate.SupergatewayAdvice(test.args)
		if a.Line != test.want || ok != (test.want != "") || ok != (a.Program != "") {
			t.Errorf("%q: %q of %q, %v; want %q", test.args, a.Line, a.Program, ok, test.want)
		}
		t.Logf("%q: %s", test.args, a)
	}
}

// Supergateway over Streamable HTTP needs no initialize, unless it is told otherwise.
func TestStatelessSupergateway(t *testing.T) {
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"--stdio", "x", "--outputTransport", "streamableHttp"}, true},
		{[]string{"--sse", "https://host/sse", "--outputTransport=streamableHttp"}, true},
		{[]string{"--stdio", "x", "--outputTransport", "streamableHttp", "--stateful"}, false},
		{[]string{"--stdio", "x", "--outputTransport", "sse"}, false},
		{[]string{"--stdio", "x"}, false},
	} {
		a, _ := migrate.SupergatewayAdvice(test.args)
		if got := strings.Contains(a.String(), "add --isolation request"); got != test.want {
			t.Errorf("%q: --isolation request is offered: %v, want %v", test.args, got, test.want)
		}
	}
}

// What a line does not take over is named, with the reason, and without its value.
func TestLineLeaves(t *testing.T) {
	for _, test := range []struct {
		args []string
		left string // flags, in their order
	}{
		{[]string{"--stdio", "x", "--outputTransport", "ws", "--port", "1", "--stateful", "--logLevel", "debug"}, ""},
		{[]string{"--stdio", "x", "--ssePath", "/hush", "--messagePath=/hush", "--streamableHttpPath", "/hush", "--baseUrl", "http://hush"}, "--ssePath --messagePath --streamableHttpPath --baseUrl"},
		{[]string{"--stdio", "x", "--healthEndpoint", "/hush", "/hush2", "--protocolVersion", "2024-11-05"}, "--healthEndpoint --protocolVersion"},
		{[]string{"--stdio", "x", "--cors"}, "--cors"},
		{[]string{"--stdio", "x", "--cors", "https://a.example", `/hush\.example$/`}, "--cors"},
		{[]string{"--stdio", "x", "--sessionTimeout", "hush"}, "--sessionTimeout"},
		{[]string{"--stdio", "x", "--header", "A: hush", "B: hush", "--oauth2Bearer", "hush"}, "--header --oauth2Bearer"},
		{[]string{"--stdio", "x", "--madeUp", "hush"}, "--madeUp"},
		{[]string{"--stdio", "npx", "-y", "hush"}, "2"},
		{[]string{"--sse", "https://host/sse", "--port", "1", "--cors", "--sessionTimeout", "1"}, "--port --cors --sessionTimeout"},
	} {
		a, _ := migrate.SupergatewayAdvice(test.args)
		var names []string
		for _, l := range a.LeftOut {
			name, why, ok := strings.Cut(l, " ")
			if names = append(names, name); !ok || why == "()" || strings.Contains(l, "hush") || !strings.Contains(a.String(), "\nNot carried over: "+l) {
				t.Errorf("%q: %q", test.args, l)
			}
		}
		if got := strings.Join(names, " "); got != test.left {
			t.Errorf("%q: left %q, want %q", test.args, got, test.left)
		}
		t.Logf("%q: %s", test.args, a)
	}
}

// Values that may be secret are not repeated, and that is said; a variable's name is no secret.
func TestLineHeaders(t *testing.T) {
	for _, test := range []struct{ line, header string }{
		{"mcp-remote https://host/mcp --header Authorization:hush", "Authorization: ..."},
		{"mcp-remote https://host/mcp --header X-Key:${KEY}", "X-Key: ${KEY}"},
		{"supergateway --sse https://host/sse --header X-Key:hush${KEY}", "X-Key: ..."},
		{"supergateway --sse https://host/sse --header X-Key:${KEY}", "X-Key: ${KEY}"},
	} {
		_, a, _ := migrate.AdviceFor(strings.Fields(test.line))
		if !strings.Contains(a.Line, "'"+test.header+"'") || strings.Contains(a.String(), "in place of") != strings.Contains(a.Line, "...") || strings.Contains(a.String(), "hush") {
			t.Errorf("%s: %s", test.line, a)
		}
	}
	if _, a, _ := migrate.AdviceFor([]string{"mcp-remote", "https://host/mcp", "--header", "Authorization:Bearer ${T}", "--allow-http"}); a.String() != "mcp-bridge connect --header 'Authorization: Bearer ${T}' https://host/mcp\nNot carried over: --allow-http (http:// is allowed without it)" {
		t.Error(a)
	}
	// A shell has put the token in, or nothing for a variable that is not set.
	for _, value := range []string{"Bearer hush", "bearer  hush", "Bearer "} {
		_, a, _ := migrate.AdviceFor([]string{"mcp-remote", "https://host/mcp", "--header", "Authorization: " + value})
		if a.String() != "mcp-bridge connect --header 'Authorization: Bearer ${TOKEN}' https://host/mcp\nPut the token into the environment variable TOKEN." {
			t.Error(a)
		}
	}
}

// Who listened on all addresses without saying so hears that mcp-bridge does not; who did say so gets a line that serve
// does not refuse. There are two programs by the name of mcp-proxy, and only that of npm listens on all addresses.
func TestLineOpens(t *testing.T) {
	const closed, opens, guarded = "", "listens on all addresses. For the same, add --host 0.0.0.0 --token-file tokens", "First make it:"
	for line, says := range map[string]string{
		"supergateway --stdio x": opens, "supergateway --sse https://host/sse": closed,
		"websocketd --port=1 ./x": opens, "websocketd --port=1 --address=127.0.0.1 ./x": closed, "websocketd --address=10.0.0.1 ./x": guarded,
		"npx -y mcp-proxy --port 1 -- x": opens, "mcp-proxy --endpoint /x -- x": opens, "mcp-proxy --requestTimeout 5 x": opens,
		"uvx mcp-proxy --port 1 -- x": closed, "mcp-proxy --port 1 -- x": closed, "uvx mcp-proxy -H A hush http://host/sse": closed,
		"npx mcp-proxy --host 0.0.0.0 --port 1 -- x": guarded, "npx mcp-proxy --host :: -- x": guarded,
		"npx mcp-proxy --host 127.0.0.1 -- x": closed, "npx mcp-proxy --host ::1 -- x": closed, "npx mcp-proxy --host [::1] -- x": closed, "npx mcp-proxy --host localhost -- x": closed,
		"uvx mcp-proxy --host=0.0.0.0 --named-server-config s.json": guarded,
		"npx -y mcp-remote https://host/mcp --host 0.0.0.0":         closed,
	} {
		_, a, _ := migrate.AdviceFor(strings.Fields(line))
		text := a.String()
		if strings.Contains(text, opens) != (says == opens) || strings.Contains(text, guarded) != (says == guarded) ||
			strings.Contains(a.Line, " --token-file tokens") != (says == guarded) {
			t.Errorf("%s: %s\nwant %q", line, text, says)
		}
	}
}

// Another program is known by its name, also behind what fetches it.
func TestProgram(t *testing.T) {
	for _, test := range []struct{ line, name, ours string }{
		{"supergateway --stdio x", "supergateway", "mcp-bridge serve --port 8000 -- x"},
		{"npx -y supergateway@4.0.0 --stdio x", "supergateway", "mcp-bridge serve --port 8000 -- x"},
		{"uvx mcp-proxy --port 1 x", "mcp-proxy", "mcp-bridge serve --port 1 --pass-env safe -- x"},
		{"uv tool run mcp-proxy --port 1 x", "mcp-proxy", "mcp-bridge serve --port 1 --pass-env safe -- x"},
		{"pnpm dlx mcp-remote https://host/mcp", "mcp-remote", "mcp-bridge connect https://host/mcp"},
		{"npx -y server mcp-remote", "", ""},
		{"cat mcp-proxy", "", ""},
		{"npx", "", ""},
	} {
		name, a, ok := migrate.AdviceFor(strings.Fields(test.line))
		if name != test.name || a.Line != test.ours || ok != (test.name != "") {
			t.Errorf("%s: %q, %q, %v", test.line, name, a.Line, ok)
		}
	}
}

// A name is known however it is spelled, and what is not another program's is not.
func TestFlag(t *testing.T) {
	for _, name := range []string{"apiKey", "api-key", "apikey", "sslCert", "ssl-cert", "disable-resource-parameter"} {
		if advice, ok := migrate.FlagAdvice(name); !ok || !strings.Contains(advice, "write --") {
			t.Errorf("--%s: %q, %v", name, advice, ok)
		}
	}
	for _, name := range []string{"", "nonsense", "port"} {
		if advice, ok := migrate.FlagAdvice(name); ok {
			t.Errorf("--%s: %q", name, advice)
		}
	}
	seen := map[string]bool{}
	for _, name := range migrate.FlagNames() {
		plain := strings.ToLower(strings.ReplaceAll(name, "-", ""))
		if seen[plain] {
			t.Errorf("--%s is there twice", name)
		}
		seen[plain] = true
		advice, _ := migrate.FlagAdvice(name)
		t.Logf("--%s: %s", name, advice)
	}
}
