package main

import (
	"strings"
	"testing"
)

// A server is named after what its command runs, and never after what may be a secret.
func TestCommandName(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-everything@2026.1.1": "server-everything",
		"npx.cmd server-files /home":                              "server-files",
		"npx --package=foo -y bar":                                "bar",
		"npx -p foo bar":                                          "bar",
		"npx --registry-token s3cret foo":                         "npx",
		"npx":                                                     "npx",
		"npx " + strings.Repeat("a", 64):                          strings.Repeat("a", 64),
		"npx " + strings.Repeat("a", 65):                          "npx",
		"npx 7zip":                                                "npx",
		"npx -y https://user:s3cret@git.example/x":                "npx",
		"npx -y git+https://user:s3cret@git.example/x":            "npx",
		"npm exec -- @scope/tool":                                 "tool",
		"npm start":                                               "npm",
		"/usr/bin/uvx mcp-server-git@1.2 --repository /r":         "mcp-server-git",
		"uvx --from git+https://s3cret@x/y mcp-server-git":        "mcp-server-git",
		"uvx mcp-server-fetch[extra]==1.0":                        "mcp-server-fetch",
		"uv run --directory /x my_server.py":                      "my_server",
		"uv tool run mcp-server-time":                             "mcp-server-time",
		"node /opt/weather/dist/index.js":                         "weather",
		"node --env-file .env weather.mjs s3cret":                 "weather",
		"node -e s3cret()":                                        "node",
		"python3.12 -u -m mcp_server_time --local":                "mcp_server_time",
		"python server.py":                                        "server.py",
		"python -c s3cret":                                        "python",
		`C:\Python\python.exe C:\tools\notes\server.py`:           "notes",
		"docker run -i --rm -e TOKEN=s3cret ghcr.io/github/github-mcp-server:v1.2":  "github-mcp-server",
		"docker run --new-option s3cret image":                                      "docker",
		"podman run --rm -i --env=A=s3cret localhost:5000/tools/notes@sha256:0123a": "notes",
		"docker compose up":               "docker",
		"/opt/bin/my-server --key s3cret": "my-server",
		"java -jar /opt/notes.jar":        "notes",
		"deno run -A main.ts":             "main.ts",
		"bun run weather.ts":              "weather",
	} {
		got := commandName(strings.Fields(command))
		if got != want || strings.Contains(got, "s3cret") {
			t.Errorf("%s is called %q, want %q", command, got, want)
		}
	}
}
