package migrate_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/migrate"
)

// A line of docker that runs another program's image is one of that program, at the port that docker publishes.
func TestDocker(t *testing.T) {
	for _, test := range []struct {
		line string
		want string // "": no line of another program
		says string // further down
	}{
		{"docker run -it --rm -p 8001:8000 supercorp/supergateway --port 8000 --stdio x", "mcp-bridge serve --port 8001 -- x", ""},
		{"docker run --publish=127.0.0.1:9000:8000/tcp ghcr.io/supercorp-ai/supergateway:3.4.3 --stdio x", "mcp-bridge serve --port 9000 -- x", ""},
		{"podman container run -p9000:8000 docker.io/supercorp/supergateway:uvx --stdio x", "mcp-bridge serve --port 9000 -- x", ""},
		{"docker run supercorp/supergateway --stdio x", "mcp-bridge serve --port 8000 -- x", ""},
		{"docker run -e KEY=hush --env B -v /hush:/data supercorp/supergateway --stdio x", "mcp-bridge serve --env KEY=... --env B --port 8000 -- x", "Not carried over: the folders that docker mounts ("},
		{"docker run -i supercorp/supergateway --sse https://host/sse", "mcp-bridge connect https://host/sse", ""},
		{"docker run -p 8080:80 ghcr.io/sparfenyuk/mcp-proxy:latest --sse-port=80 uvx fetch --port 3", "mcp-bridge serve --port 8080 --pass-env safe -- uvx fetch --port 3", ""},
		{"docker run -p 8080:80 ghcr.io/sparfenyuk/mcp-proxy -- uvx fetch --port 3", "mcp-bridge serve --port 8080 --pass-env safe -- uvx fetch --port 3", ""},
		{"docker run -p 8080:80 ghcr.io/sparfenyuk/mcp-proxy uvx fetch --port 3", "mcp-bridge serve --port 8080 --pass-env safe -- uvx fetch --port 3", ""},
		{"docker run -v /home/supergateway:/data mcp/git", "", ""},
		{"docker build supercorp/supergateway", "", ""},
		{"docker", "", ""},
	} {
		_, a, ok := migrate.AdviceFor(strings.Fields(test.line))
		if a.Line != test.want || ok != (test.want != "") || !strings.Contains(a.String(), test.says) || strings.Contains(a.String(), "hush") {
			t.Errorf("%s: %v, %s; want %s", test.line, ok, a, test.want)
		}
	}
}

// Clients of a WebSocket hear that its path is another one.
func TestWebSocketPath(t *testing.T) {
	for line, says := range map[string]bool{"--stdio x --outputTransport ws": true, "--outputTransport=sse --stdio x": false} {
		if a, _ := migrate.SupergatewayAdvice(strings.Fields(line)); strings.Contains(a.String(), "clients is /ws") != says {
			t.Errorf("%s: %s", line, a)
		}
	}
}

// Times get the unit that the other program means.
func TestTimes(t *testing.T) {
	for line, want := range map[string]string{
		"mcp-remote https://host/mcp --auth-timeout 60":                   "mcp-bridge connect --auth-wait 60s https://host/mcp",
		"mcp-remote https://host/mcp --auth-timeout=2m":                   "mcp-bridge connect --auth-wait 2m https://host/mcp",
		"mcp-remote https://host/mcp --auth-timeout soon":                 "mcp-bridge connect https://host/mcp",
		"mcp-proxy --sessionIdleTimeout 60000 cat":                        "mcp-bridge serve --session-timeout 60s -- cat",
		"mcp-proxy --gracefulShutdownTimeout 1500 --requestTimeout 0 cat": "mcp-bridge serve --grace 1500ms -- cat",
		"websocketd --closems=3000 cat":                                   "mcp-bridge serve --term-wait 3s --kill-wait 3s -- cat",
	} {
		if _, a, _ := migrate.AdviceFor(strings.Fields(line)); a.Line != want {
			t.Errorf("%s: %s; want %s", line, a, want)
		}
	}
	for line, want := range map[string]string{ // what is not carried over has the value that was written
		"mcp-proxy --connectionTimeout 60000 cat":               "--connectionTimeout (serve sets a command no such limit; with a URL, write --connect-timeout 60s)",
		"mcp-proxy --requestTimeout 0 cat":                      "--requestTimeout (it is no number above 0; write --request-timeout with a unit, such as 30s)",
		"mcp-remote https://host/mcp --sessionIdleTimeout 5000": "--sessionIdleTimeout (connect has no such flag)",
		"mcp-remote https://host/mcp --auth-timeout soon":       "--auth-timeout (it is no number above 0; write --auth-wait with a unit, such as 30s)",
	} {
		if _, a, _ := migrate.AdviceFor(strings.Fields(line)); len(a.LeftOut) != 1 || a.LeftOut[0] != want {
			t.Errorf("%s: %q; want %q", line, a.LeftOut, want)
		}
	}
}
