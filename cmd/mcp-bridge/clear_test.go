package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// A credential that others can read on its way is warned of, and not repeated.
func TestWarnClear(t *testing.T) {
	for _, test := range []struct {
		url, header string
		warns       bool
	}{
		{"http://host.example/mcp", "Authorization", true},
		{"ws://host.example/ws", "X-Api-Key", true},
		{"http://host.example/mcp", "X-Access-Token", true},
		{"http://me:hush-hush@host.example/mcp", "X-Other", true},
		{"https://host.example/mcp", "Authorization", false},
		{"http://localhost:1/mcp", "Authorization", false},
		{"http://[::1]/mcp", "Authorization", false},
		{"http://host.example/mcp", "X-Other", false},
		{"unix:/x", "X-Other", false},
	} {
		var text strings.Builder
		log := hclog.New(&hclog.LoggerOptions{Output: &text})
		warnCleartext(upstream.Spec{Name: "s", URL: test.url, Remote: remote.Options{Header: http.Header{test.header: {"hush-hush"}}}}, log)
		if (text.Len() > 0) != test.warns || strings.Contains(text.String(), "hush") {
			t.Errorf("%s, %s: %s", test.url, test.header, &text)
		}
	}
}
