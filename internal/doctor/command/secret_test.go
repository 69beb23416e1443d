package command

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// TestSecretArguments: credentials in arguments are found, named by their position, and
// neither the report nor the command line shows them.
func TestSecretArguments(t *testing.T) {
	for _, c := range []struct {
		args   []string
		secret string
		at     string
	}{
		{[]string{"--api-key", "hunter2hunter2"}, "hunter2hunter2", "argument 2: the value of --api-key"},
		{[]string{"run", "--token=abcd-efgh"}, "abcd-efgh", "argument 2: the value of --token"},
		{[]string{"-i", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN=ghx0123456"}, "ghx0123456", "argument 3"},
		{[]string{"ghp_" + strings.Repeat("a1B2", 9)}, "ghp_" + strings.Repeat("a1B2", 9), "in the form of a key"},
		{[]string{"x=sk-proj-abcdefghijklmnop0123"}, "sk-proj-abcdefghijklmnop0123", "argument 1"},
		{[]string{"postgres://user:p4ssw0rd@db/x"}, "p4ssw0rd", "password in a URL"},
		{[]string{"https://example.com/mcp?x=1&api_key=0a1b2c3d4e"}, "0a1b2c3d4e", "api_key in a URL"},
		{[]string{"--header", "Authorization: Bearer abcdefgh12345"}, "abcdefgh12345", "argument 2"},
		{[]string{"--header", "X-API-Key: abcdefgh12345"}, "abcdefgh12345", "argument 2"},
		{[]string{"aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF"}, "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF", "looks random"},
	} {
		r := doctor.NewReport(DisplayCommand("server", c.args))
		diagnoseArguments(c.args, r)
		f := one(t, r, "C14")
		if out := text(t, r); strings.Contains(out, c.secret) || !strings.Contains(f.Evidence, c.at) {
			t.Errorf("%q: want %q, and no secret, in\n%s", c.args, c.at, out)
		}
	}
}

func TestOrdinaryArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "/home/someone/Documents"},
		{"run", "-i", "--rm", "-e", "API_KEY", "image@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
		{"--token-file", "/run/secrets/token", "--max-tokens", "4096", "--key=server.key", "--token", "$TOKEN"},
		{"--api-key", "${API_KEY}", "--password", "--verbose", "--tokenizer=cl100k_base", "--author=somebody"},
		{"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "123e4567-e89b-12d3-a456-426614174000", "--sort-key=name"},
		{"-c", "import json, sys; print(json.dumps({'key': 'value'}))", "https://example.com/mcp?page=1"},
		{"--experimental-strip-types", "some_very_long_file_name_without_any_secret_in_it_at_all"},
	} {
		if found := findSecretArgs(args); len(found) > 0 {
			t.Errorf("%q: %+v", args, found)
		}
	}
}

func TestCausesOfAnExit(t *testing.T) {
	for stderr, want := range map[string]string{
		"ModuleNotFoundError: No module named 'mcp.server'":                       "the Python module mcp.server is missing",
		"/usr/bin/python3: No module named server":                                "the Python module server is missing",
		"Error: Cannot find module '/srv/dist/index.js'":                          "the module /srv/dist/index.js is missing",
		"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'zod' imported from x": "the module zod is missing",
		"SyntaxError: Unexpected token b in JSON at position 1":                   "it cannot read JSON (SyntaxError: Unexpected token b in JSON at position 1)",
		"SyntaxError: Unexpected token ';'":                                       "there is a syntax error in its code (SyntaxError: Unexpected token ';')",
		"json.decoder.JSONDecodeError: Expecting value: line 1":                   "it cannot read JSON (JSONDecodeError: Expecting value: line 1)",
		"KeyError: 'GITHUB_TOKEN'":                                                "the variable GITHUB_TOKEN is missing",
		"GITHUB_PERSONAL_ACCESS_TOKEN environment variable is not set":            "the variable GITHUB_PERSONAL_ACCESS_TOKEN is missing",
		"Please set the BRAVE_API_KEY environment variable":                       "the variable BRAVE_API_KEY is missing",
		"Error: listen EADDRINUSE: address already in use :::3000":                "its port is in use (EADDRINUSE)",
		"python3: can't open file '/x/server.py': [Errno 2]":                      "the file /x/server.py is missing",
		"sh: 1: uvx: not found":                                                   "the program uvx is not found",
		"npm error 404  '@nobody/none@*' is not in this registry.":                "the package @nobody/none@* is not in the registry",
		"error: unknown option '--stdio'":                                         "it does not know an argument (unknown option)",
		"Usage: server [options]":                                                 "it prints its help (Usage: ...)",
		"Server started":                                                          "",
	} {
		if is, _ := recogniseCause(stderr); is != want {
			t.Errorf("%q: %q, want %q", stderr, is, want)
		}
	}
}

// The heading of the report can be typed into a shell as it stands.
func TestDisplayCommandIsQuoted(t *testing.T) {
	got := DisplayCommand("sh", []string{"-c", `echo "it's"; exit 3`, "", "--token=abcd-efgh", "a/b.c"})
	if want := `sh -c 'echo "it'\''s"; exit 3' '' '--token=(hidden)' a/b.c`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
