package migrate_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
)

// A line in quotes has no secret in it, wherever it stands.
func TestLineOfQuotes(t *testing.T) {
	for _, args := range [][]string{
		{"--named-server", "x", "uvx srv --token hush", "--port", "8080", "--", "cat"},
		{"--port", "1", "--", "sh", "-c", "srv --token hush"},
		{"--port", "1", "--", "srv --header 'Authorization: Bearer hush'"},
	} {
		if _, a, _ := migrate.AdviceFor(append([]string{"mcp-proxy"}, args...)); a.Line == "" || strings.Contains(a.String(), "hush") {
			t.Errorf("%q: %s", args, a)
		}
	}
	if _, a, _ := migrate.AdviceFor([]string{"mcp-proxy", "--port", "1", "--shell", "node s.js | tee x"}); a.Line != "mcp-bridge serve --port 1 -- sh -c 'node s.js | tee x'" {
		t.Errorf("%s", a)
	}
	if a, _ := migrate.SupergatewayAdvice([]string{"--stdio", `sh -c "srv --token hush"`}); strings.Contains(a.String(), "hush") {
		t.Errorf("%s", a)
	}
}

// Lines of the programs beside supergateway keep what mcp-bridge has; what it has not is named, without its value.
func TestLineOf(t *testing.T) {
	for _, test := range []struct {
		line string
		want string // "": no line of theirs
		left string // flags, in their order
	}{
		{"npx mcp-proxy --port 8080 -- tsx server.js", "mcp-bridge serve --port 8080 -- tsx server.js", ""},
		{"npx mcp-proxy --port=8080 --apiKey hush --endpoint /hush --stateless --bogus=1 tsx server.js --port 1", "mcp-bridge serve --port 8080 --isolation request -- tsx server.js --port 1", "--apiKey --endpoint --bogus"},
		{"npx mcp-proxy --sslCert c.pem --shell --no-modern -- srv --token hush", "mcp-bridge serve --tls-cert c.pem --client-protocol legacy -- srv --token ...", "--shell"},
		{"uvx mcp-proxy --port=8080 --pass-environment --allow-origin https://a.example -e KEY hush uvx mcp-server-fetch", "mcp-bridge serve --port 8080 --allow-origin https://a.example --env KEY=... -- uvx mcp-server-fetch", "--pass-environment"},
		{"mcp-proxy --transport streamablehttp -H Authorization hush http://localhost:8080/mcp --port 1", "mcp-bridge connect --transport streamablehttp --header 'Authorization: ...' http://localhost:8080/mcp", "--port"},
		{"npx -y mcp-remote@latest https://me:hush@host.example/mcp 3334 --allow-http --header Authorization:hush --auth-timeout 60 --bogus", "mcp-bridge connect --header 'Authorization: ...' --auth-wait 60s --redirect-port 3334 https://...@host.example/mcp", "--allow-http --bogus"},
		{"mcp-remote https://host.example/mcp --host localhost --transport http-only --ignore-tool x* --static-oauth-client-info hush", "mcp-bridge connect --redirect-host localhost --transport http-only --ignore-tool 'x*' https://host.example/mcp", "--static-oauth-client-info"},
		{"mcp-remote https://host.example/mcp 1 hush", "mcp-bridge connect --redirect-port 1 https://host.example/mcp", "1"},
		{"websocketd --port=8080 --devconsole --staticdir=hush ./my-server x", "mcp-bridge serve --port 8080 --inspect -- ./my-server x", "--staticdir"},
		{"websocketd -port 1 --maxforks=3 ./x", "mcp-bridge serve --port 1 --max-children 3 -- ./x", ""},
		{"npx @modelcontextprotocol/inspector --cli https://host.example/mcp --transport http --method tools/call --tool-name echo --tool-arg a=hush --bogus", `mcp-bridge doctor --call echo https://host.example/mcp '{"ARGUMENT": "VALUE"}'`, "--tool-arg --bogus"},
		{"npx -y @modelcontextprotocol/inspector@0.17.0 node build/index.js", "mcp-bridge doctor -- node build/index.js", ""},
		{"npx mcp-proxy --port 8080 --requestTimeout 5000 --modern --eventStore -- tsx server.js", "mcp-bridge serve --port 8080 --request-timeout 5s -- tsx server.js", "--modern --eventStore"},
		{"mcp-proxy --port 8080 --named-server-config s.json --stateless", "mcp-bridge serve --port 8080 --config s.json --isolation request", ""},
		{"mcp-proxy --named-server fetch hush --named-server time hush --port 8080 --bogus", "mcp-bridge serve --port 8080 --config servers.json", "--bogus --named-server"},
		{"mcp-proxy --named-server-config s.json --pass-environment --port 1", "mcp-bridge serve --config s.json --pass-env all --port 1", ""},
		{"mcp-proxy --pass-environment --named-server fetch hush", "mcp-bridge serve --pass-env all --config servers.json", "--named-server"},
		{"mcp-proxy --named-server-config s.json --port 1 -e KEY hush --cwd /hush -- cat hush", "mcp-bridge serve --config s.json --port 1", "the"},
		{"npx mcp-proxy --sslCa ca.pem --sslCert c.pem --sslKey k.pem -- cat", "mcp-bridge serve --tls-cert c.pem --tls-key k.pem -- cat", "--sslCa"},
		{"npx mcp-proxy --maxBodySize 1048576 -- cat", "mcp-bridge serve --max-message-size 1048576 -- cat", ""},
		{"npx mcp-proxy --maxBodySize 0 -- cat", "mcp-bridge serve -- cat", "--maxBodySize"},
		{"websocketd --passenv=PATH,KEY ./x", "mcp-bridge serve --pass-env PATH,KEY -- ./x", ""},
		{"uvx --from mcp-proxy mcp-proxy --port 1 cat", "mcp-bridge serve --port 1 --pass-env safe -- cat", ""},
		{"uvx --from git+https://host/x -p 3.13 mcp-proxy --port 1 cat", "mcp-bridge serve --port 1 --pass-env safe -- cat", ""},
		{"pipx run mcp-proxy --port 1 --no-pass-environment cat", "mcp-bridge serve --port 1 --pass-env safe -- cat", ""},
		{"uvx mcp-proxy --named-server-config s.json --port 1", "mcp-bridge serve --config s.json --port 1", ""}, // where safe is the default
		{"uvx mcp-proxy http://host/sse", "mcp-bridge connect http://host/sse", ""},
		{"npx -y -p mcp-remote@latest mcp-remote https://host/mcp", "mcp-bridge connect https://host/mcp", ""},
		{"mcp-proxy --port 8080", "", ""},
		{"mcp-remote --debug", "", ""},
		{"mcp-proxy --bogus hush http://host/sse", "", ""},
		{"mcp-proxy --client-id me --client-secret hush --token-url https://i/t http://host/sse", "mcp-bridge connect --client-id me http://host/sse", "--client-secret --token-url"},
		{"mcp-remote https://host/mcp --resource https://u:hush@host/", "mcp-bridge connect --resource https://...@host/ https://host/mcp", ""},
		{"mcp-remote https://me:hush@host/@org/name/mcp?key=hush", "mcp-bridge connect 'https://...@host/@org/name/mcp?key=...'", ""},
		{"mcp-remote http://[::1]:8080/@org/mcp", "mcp-bridge connect 'http://[::1]:8080/@org/mcp'", ""},
		{"mcp-remote http://me:hush/hush@host:8080/@org/mcp", "mcp-bridge connect http://...@host:8080/@org/mcp", ""},
		{"mcp-proxy --port 1 -- srv --urls=https://u:hush@host/x,https://u:hush@host/y", "mcp-bridge serve --port 1 -- srv --urls=https://...@host/x,https://...@host/y", ""},
		{"mcp-proxy --port 1 -- srv --cookie hush --session_Token=hush", "mcp-bridge serve --port 1 -- srv --cookie ... --session_Token=...", ""},
		{"mcp-proxy --port 1 -- srv --db=postgres://u:hush@host/x", "mcp-bridge serve --port 1 -- srv --db=postgres://...@host/x", ""},
		{"npx @modelcontextprotocol/inspector --config c.json --server hush", "", ""},
		{"supergateway --stdio x", "mcp-bridge serve --port 8000 -- x", ""},
	} {
		_, a, _ := migrate.AdviceFor(strings.Fields(test.line))
		var names []string
		for _, l := range a.LeftOut {
			name, why, _ := strings.Cut(l, " ")
			if names = append(names, name); why == "()" {
				t.Errorf("%s: no reason for %q", test.line, l)
			}
		}
		if left := strings.Join(names, " "); a.Line != test.want || left != test.left || strings.Contains(a.String(), "hush") {
			t.Errorf("%s:\n%s\nwant %q, left %q", test.line, a, test.want, test.left)
		}
		t.Logf("%s: %s", test.line, a)
	}
}

// The reason why a flag is left is true: serve has the flag --transport, which says something else.
func TestLeftReason(t *testing.T) {
	_, a, _ := migrate.AdviceFor([]string{"mcp-proxy", "--transport", "streamablehttp", "--port", "1", "--", "cat"})
	if want := "Not carried over: --transport (every transport is at one port (/mcp, /sse, /ws))"; !strings.Contains(a.String(), want) {
		t.Errorf("%s\nwant %q", a, want)
	}
}
