package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// Whoever gives a flag that has no effect on the server is told so, for each flag by its name.
func TestUnusedFlagsAreNamed(t *testing.T) {
	for _, test := range []struct {
		command, flags, server string
		unused                 string // the flags of which it is said, in the order of their names
	}{
		{"connect", "--transport sse-only --profile x --cwd / --name n", "command", "profile transport"},
		{"connect", "--transport sse-only --profile x --cwd / --name n", "https://x/mcp", "cwd"},
		{"connect", "--transport sse-only --resume-timeout 1s --profile x --cwd /", "wss://x/mcp", "cwd resume-timeout transport"},
		{"connect", "--transport sse-only --resume-timeout 1s --connect-timeout 1s --profile x --ca-file f --cwd / --name n", "unix:/x", "ca-file cwd profile resume-timeout transport"},
		{"connect", "--profile x --no-browser --name n --pty", "", "name profile"},
		{"serve", "--ca-file f --allow-private-auth --oidc-issuer https://x", "tcp:localhost:1", ""},
		{"doctor", "--max-message-size 1MiB --pty", "https://x/mcp", "max-message-size pty"},
		{"doctor", "--max-message-size 1MiB --pty", "command", ""},
	} {
		c, _ := findCommand(test.command)
		fs := c.newFlagSet()
		if _, _, err := parseFlags(fs, strings.Fields(test.flags)); err != nil {
			t.Fatal(err)
		}
		to := target{url: test.server}
		switch test.server {
		case "command":
			to = target{argv: []string{"x"}}
		case "":
			to = target{}
		}
		var log strings.Builder
		warnUnusedFlags(fs, to, hclog.New(&hclog.LoggerOptions{Output: &log}))
		var named []string
		for line := range strings.Lines(log.String()) {
			_, rest, _ := strings.Cut(line, "--")
			name, _, _ := strings.Cut(rest, " ")
			named = append(named, name)
		}
		slices.Sort(named)
		if got := strings.Join(named, " "); got != test.unused {
			t.Errorf("%s %s %s: named are %q", test.command, test.flags, test.server, got)
		}
	}
}

// doctor --config names, once each, the flags that have no effect on any server of a file, and those that have none on this one.
func TestDoctorOfFileNamesUnusedFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"mcpServers": {"far": {"url": "http://127.0.0.1:1/mcp"}, "local": {"command": "/no-such-command"}}}`), 0o600))
	for args, unused := range map[string]string{
		"--max-message-size 1MiB --pty --cwd / far":        "--cwd has no effect with --config: write it into the file|--max-message-size has no effect with a URL|--pty has no effect with a URL",
		"--max-message-size 1MiB --pty --auth-dir x local": "--auth-dir has no effect with a command",
		"--json far":   "",
		"--json local": "",
	} {
		_, out, errs := try(t, append([]string{"doctor", "--config", file}, strings.Fields(args)...)...)
		var named []string
		for line := range strings.Lines(errs) {
			if at := strings.Index(line, "--"); at >= 0 {
				named = append(named, strings.TrimSpace(line[at:]))
			}
		}
		slices.Sort(named)
		if strings.Join(named, "|") != unused || out == "" {
			t.Errorf("%s: stderr is %q, stdout %q", args, errs, out)
		}
	}
}

// replay --stdio takes all flags of serve, and names those that connect does not have.
func TestReplayAtStdioNamesUnusedFlags(t *testing.T) {
	var f replayServeFlags
	f.set = f.flagSet()
	if _, _, err := parseFlags(f.set, strings.Fields("--stdio --strict --hop up --trace t --inspect --port 1 --max-sessions 2")); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	f.warnUnusedAtStdio(hclog.New(&hclog.LoggerOptions{Output: &log}))
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "--port has no effect with --stdio") || !strings.Contains(text, "--max-sessions has") {
		t.Errorf("the log is %s", text)
	}
}

// The commands about credentials say which flags of connect do nothing for them, and do the rest.
func TestUnusedFlagsOfSignIn(t *testing.T) {
	server := authtest.New(t)
	m := newMachine(t, true)
	config := t.TempDir() + "/servers.json"
	bridgetest.Must(t, os.WriteFile(config, []byte(`{"mcpServers": {"a": {"url": "`+server.URL+`"}}}`), 0o600))
	for _, test := range []struct {
		args, unused string
		status       int
	}{
		{"login --auth-wait 1m --scope tools " + server.URL, "--auth-wait has no effect with login", exitOK},
		{"login --auth-wait 45s --auth auto " + server.URL, "", exitOK},
		{"status --auth-prompt error " + server.URL, "--auth-prompt has no effect with status", exitOK},
		{"status --check --dpop auto --auth auto " + server.URL, "", exitOK},
		{"logout --no-browser " + server.URL, "--no-browser has no effect with logout", exitOK},
		{"logout --auth client-credentials " + server.URL, "--auth has no effect with logout", exitOK},
		{"login --config " + config + " --profile work a", "--profile has no effect with --config: write it into the file", exitOK},
		{"status --config " + config + " --token-store file a", "", exitOK},
	} {
		status, out, errs := m.run(nil, nil, strings.Fields(test.args)...)
		if status != test.status || strings.Contains(errs, "has no effect") != (test.unused != "") || !strings.Contains(errs, test.unused) {
			t.Errorf("%s: status %d, stdout %q, stderr %q", test.args, status, out, errs)
		}
	}
}
