package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check-config reports every command that is not there with its line, and whatever else
// is wrong with the file in the same run.
func TestCheckConfigReportsAllWithLines(t *testing.T) {
	missing := "{\"mcpServers\": {\n" +
		"\"a\": {\"command\": \"this-command-does-not-exist\"},\n" +
		"\"b\": {\"command\": \"nor-does-this-one\"},\n" +
		"\"c\": {\"command\": \"not-looked-for\", \"disabled\": true}"
	file := filepath.Join(t.TempDir(), "servers.json")
	for _, c := range []struct {
		text   string
		status int
		lines  []string
	}{
		{missing + "}}", exitFail, []string{":2:", ":3:"}},
		{missing + ",\n\"d\": {\"command\": \"ls\", \"args\": 5}}}", exitUsage, []string{":2:", ":3:", ":5:"}},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs := try(t, "check-config", file)
		if status != c.status || out != "" {
			t.Errorf("status %d, want %d; stdout %q", status, c.status, out)
		}
		for _, line := range c.lines {
			if !strings.Contains(errs, file+line) {
				t.Errorf("nothing about line %s in %q", line, errs)
			}
		}
		if strings.Contains(errs, "not-looked-for") {
			t.Errorf("a disabled server was looked at: %q", errs)
		}
	}
}

// The arguments of mcp-bridge itself, as a client's file has them, are checked as mcp-bridge would.
func TestCheckConfigOwnArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "claude.json")
	for _, c := range []struct{ command, args, says string }{
		{"mcp-bridge", `"connect", "https://host.example/mcp", "--header-env", "Authorization=AUTH"], "env": {"AUTH": "x"}, "disabledTools": [`, ""},
		{"mcp-bridge", `"connect", "htps://host.example/mcp"`, "htps"},
		{`C:\\bin\\mcp-bridge.exe`, `"https://host.example/mcp", "--headr", "A: hush"`, "--headr"},
		{"/usr/bin/mcp-bridge", `"connect", "--header"`, "--header"},
		{"mcp-bridge", `"connect", "--header-env", "Authorization=NOT_SET_ANYWHERE", "https://host.example/mcp"`, "NOT_SET_ANYWHERE"},
		{"mcp-bridge", `"connect", "--ca-file", "ca.pem", "https://host.example/mcp"`, "--ca-file is a relative path"},
		{"mcp-bridge", `"--config=servers.json", "a"`, "write connect"},
		{"mcp-bridge", `"connect", "--config", "servers.json", "a"`, "--config is a relative path"},
		{"mcp-bridge", `"serve", "--", "cat"`, "write connect"},
		{"mcp-bridge", `"connect", "--name", "a", "--", "cat", "--headr"`, ""},
	} {
		text := `{"mcpServers": {"a": {"command": "` + c.command + `",` + "\n" + `"args": [` + c.args + `]}}}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, errs := try(t, "check-config", file)
		if c.says == "" { // mcp-bridge need not be installed here
			errs = strings.ReplaceAll(errs, "not found", "")
			if strings.Contains(errs, "--") || strings.Contains(errs, "URL") {
				t.Errorf("%s: %q", c.args, errs)
			}
			continue
		}
		if !strings.Contains(errs, c.says) || !strings.Contains(errs, file+":") || strings.Contains(errs, "hush") {
			t.Errorf("%s: %q, want %s", c.args, errs, c.says)
		}
	}
}

// Claude Desktop knows no server with a url; a file of another client, or of ours, may have one.
func TestCheckConfigURLOfClaudeDesktop(t *testing.T) {
	dir := t.TempDir()
	for name, warns := range map[string]bool{"claude_desktop_config.json": true, "mcp.json": false} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("{\"mcpServers\": {\"a\": {\"command\": \"ls\"},\n\"b\": {\"url\": \"https://host.example/mcp?k=hush\"}}}"), 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, errs := try(t, "check-config", file)
		says := strings.Contains(errs, file+`:2:7: the server "b" has "url", and Claude Desktop knows servers with a command only: for Claude Desktop, write "command": "mcp-bridge", "args": ["connect", "URL"]`)
		if status != exitOK || says != warns || strings.Contains(errs, "hush") {
			t.Errorf("%s: status %d, %q", name, status, errs)
		}
		status, _, errs = try(t, "wrap", "b", "--client", file)
		if status == exitOK || !strings.Contains(errs, `write "command": "mcp-bridge", "args": ["connect", "URL"]`) || strings.Contains(errs, "(Claude Desktop knows") != warns ||
			!strings.Contains(errs, `"b"`) || strings.Contains(errs, "hush") {
			t.Errorf("wrap in %s: status %d, %q", name, status, errs)
		}
	}
}
