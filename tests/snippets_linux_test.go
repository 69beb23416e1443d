package tests

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A snippet is an entry of a client's configuration that a document shows: a command that the client starts, or an address.
type snippet struct {
	name, file     string
	Command        string
	Args           []string
	Env            map[string]string
	URL, ServerURL string
	HTTPURL        string
	Headers        map[string]string
}

var (
	jsonBlock = regexp.MustCompile("(?s)\\n```json\\n(.*?)```")
	tomlBlock = regexp.MustCompile("(?s)\\n```toml\\n(.*?)```")
	tomlTable = regexp.MustCompile(`(?m)^\[mcp_servers\.(\w+)\]\n((?:.+\n)*)`)
	tomlEntry = regexp.MustCompile(`(?m)^(\w+) = (.*)$`)
	tomlPair  = regexp.MustCompile(`(\w+) = (".*?")`)
)

// tomlSnippets returns the entries of a document's TOML, whose values are those of JSON but for tables: { A = "b" }.
func tomlSnippets(t *testing.T, file string) (all []snippet) {
	t.Helper()
	for _, block := range tomlBlock.FindAllStringSubmatch(readDoc(t, filepath.Join("..", file)), -1) {
		for _, table := range tomlTable.FindAllStringSubmatch(block[1], -1) {
			var members []string
			for _, entry := range tomlEntry.FindAllStringSubmatch(table[2], -1) {
				value := entry[2]
				if strings.HasPrefix(value, "{") {
					value = tomlPair.ReplaceAllString(value, `"$1": $2`)
				}
				members = append(members, `"`+entry[1]+`": `+value)
			}
			s := snippet{name: table[1], file: file}
			bridgetest.Must(t, json.Unmarshal([]byte("{"+strings.Join(members, ",")+"}"), &s))
			if s.Command == "mcp-bridge" || strings.HasPrefix(s.URL, "http://127.0.0.1:8080/") {
				all = append(all, s)
			}
		}
	}
	return all
}

// snippetsOf returns the entries of a document's JSON and TOML that start the bridge, or reach it at its usual address.
func snippetsOf(t *testing.T, file string) (all []snippet) {
	t.Helper()
	for _, block := range jsonBlock.FindAllStringSubmatch(readDoc(t, filepath.Join("..", file)), -1) {
		var groups map[string]json.RawMessage
		if json.Unmarshal([]byte(block[1]), &groups) != nil {
			t.Errorf("%s: this is no JSON:\n%s", file, block[1])
		}
		for _, group := range []string{"mcpServers", "servers", "context_servers"} {
			var servers map[string]snippet
			if groups[group] != nil {
				bridgetest.Must(t, json.Unmarshal(groups[group], &servers))
			}
			for _, name := range slices.Sorted(maps.Keys(servers)) {
				s := servers[name]
				s.name, s.file, s.URL = name, file, s.URL+s.ServerURL+s.HTTPURL
				if s.Command == "mcp-bridge" || strings.HasPrefix(s.URL, "http://127.0.0.1:8080/") {
					all = append(all, s)
				}
			}
		}
	}
	return append(all, tomlSnippets(t, file)...)
}

// judge does with an entry what its client does. At 127.0.0.1:8080 is a demo.
func (s snippet) judge(w *world) {
	w.t.Helper()
	if s.Command == "" {
		a := address{url: s.URL, client: &http.Client{Timeout: harness.Patience}}
		if resp, body := a.post(w.t, initialize("2025-06-18"), "", strings.TrimPrefix(s.Headers["Authorization"], "Bearer ")); !isInitialized(body) {
			w.t.Errorf("%s: %s: %s answers %s %s", s.file, s.name, s.URL, resp.Status, body)
		}
		return
	}
	var env []string
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	p := start(w.t, env, append([]string{s.Command}, s.Args...)...)
	p.send(initialize("2025-06-18"))
	if line := p.line(); !isInitialized(line) {
		w.t.Errorf("%s: %s: %q answers %s\n%s", s.file, s.name, s.Args, line, p.Log())
	}
	p.Stdin.Close()
	if status := p.wait(); status != 0 {
		w.t.Errorf("%s: %s: %q ends with status %d", s.file, s.name, s.Args, status)
	}
}
