package hub_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
)

// SS10, ED5, MI1: where clients may speak 2026-07-28 only, nothing opens a session.
// HTTP+SSE is not served, which whoever may know is told; who has no token is not.
func TestOnlyModernClients(t *testing.T) {
	spec := demoSpec(t, "a b")
	spec.Clients = era.OnlyModern
	one, alone := start(t, hub.Options{SingleServer: true, PathPrefix: "/tools"}, spec)
	spec = demoSpec(t, "a b")
	spec.Clients = era.OnlyModern
	_, many := start(t, hub.Options{PathPrefix: "/tools"}, spec, demoSpec(t, "all"))
	for url, at := range map[string]string{alone: "/tools/mcp", many + "/servers/a%20b": "/tools/servers/a%20b/mcp", many + "/tools/servers/a%20b": "/tools/servers/a%20b/mcp"} {
		for path, method := range map[string]string{"/sse": http.MethodGet, "/sse/": http.MethodPost, "/message?sessionId=x": http.MethodPost} {
			status, _, body := do(t, method, url+path, hello, "Accept", "application/json") // or a stream without end
			if status != http.StatusNotFound || !strings.Contains(body, "--client-protocol modern") || !strings.HasSuffix(strings.TrimSpace(body), "at "+at) {
				t.Errorf("%s %s: %d %s", method, url+path, status, body)
			}
		}
		if status, header, body := do(t, http.MethodPost, url+"/mcp", hello); status != http.StatusBadRequest || !strings.Contains(body, "-32022") || header.Get("Mcp-Session-Id") != "" {
			t.Errorf("initialize: %d %v %s", status, header, body)
		}
		if status, header, _ := do(t, http.MethodGet, url+"/mcp", "", "Accept", "text/event-stream", "Mcp-Session-Id", "x"); status != http.StatusMethodNotAllowed || header.Get("Allow") != "POST" {
			t.Errorf("GET: %d, Allow %q", status, header.Get("Allow"))
		}
	}
	if n := one.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	if _, _, body := do(t, http.MethodGet, many+"/servers", ""); strings.Contains(body, "a%20b/sse") || !strings.Contains(body, "a%20b/mcp") || !strings.Contains(body, "all/sse") {
		t.Errorf("the index is %s", body)
	}
	if status, _, body := do(t, http.MethodGet, alone+"/sse", "", "Origin", "https://evil.example"); status != http.StatusForbidden {
		t.Errorf("another site's page: %d %s", status, body)
	}
}

// SS10: who asks for something that there is not is told only of what there is.
func TestNotFoundNamesWhatIsServed(t *testing.T) {
	modern := demoSpec(t, "modern")
	modern.Clients = era.OnlyModern
	for _, tt := range []struct {
		alone bool
		specs []hub.Spec
		want  string
	}{
		{true, []hub.Spec{demoSpec(t, "all")}, "not found; the MCP endpoints are /mcp (Streamable HTTP), /sse (HTTP+SSE) and /ws (WebSocket)"},
		{true, []hub.Spec{modern}, "not found; the MCP endpoints are /mcp (Streamable HTTP) and /ws (WebSocket)"},
		{false, []hub.Spec{demoSpec(t, "all")}, "not found; /servers lists the servers, each at /servers/NAME/mcp (Streamable HTTP), /servers/NAME/sse (HTTP+SSE) and /servers/NAME/ws (WebSocket)"},
		{false, []hub.Spec{modern}, "not found; /servers lists the servers, each at /servers/NAME/mcp (Streamable HTTP) and /servers/NAME/ws (WebSocket)"},
		{false, []hub.Spec{modern, demoSpec(t, "all")}, "not found; /servers lists the servers, each at /servers/NAME/mcp (Streamable HTTP) and /servers/NAME/ws (WebSocket)"},
	} {
		_, url := start(t, hub.Options{SingleServer: tt.alone}, tt.specs...)
		for _, path := range []string{"/nothing", "/servers/modern/nothing"} {
			want := tt.want
			if !tt.alone && path == "/servers/modern/nothing" && tt.specs[0].Name != "modern" {
				want = strings.Replace(want, "not found;", `not found; there is no server "modern";`, 1)
			}
			if status, _, body := do(t, http.MethodPost, url+path, "{}"); status != http.StatusNotFound || strings.TrimSpace(body) != want {
				t.Errorf("%s of %d servers: %d %s", path, len(tt.specs), status, body)
			}
		}
	}
}

// The paths in a 404 are those that clients of the proxy write.
func TestNotFoundHasPrefix(t *testing.T) {
	_, alone := start(t, hub.Options{SingleServer: true, PathPrefix: "/tools"}, demoSpec(t, "all"))
	_, many := start(t, hub.Options{PathPrefix: "/tools"}, demoSpec(t, "all"))
	for url, want := range map[string]string{
		alone + "/tools/nothing": "not found; the MCP endpoints are /tools/mcp (Streamable HTTP), /tools/sse (HTTP+SSE) and /tools/ws (WebSocket)",
		many + "/nothing":        "not found; /tools/servers lists the servers, each at /tools/servers/NAME/mcp (Streamable HTTP), /tools/servers/NAME/sse (HTTP+SSE) and /tools/servers/NAME/ws (WebSocket)",
	} {
		if status, _, body := do(t, http.MethodPost, url, "{}"); status != http.StatusNotFound || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
}

// Who has forgotten --path-prefix is told, where the path could be that of a proxy.
func TestNotFoundNamesPrefix(t *testing.T) {
	for _, tt := range []struct {
		alone        bool
		prefix, path string
		hint         string // "": none
	}{
		{true, "", "/tools/mcp", `adds "/tools" to the path, --path-prefix`},
		{true, "", "/a/b/ws", `adds "/a/b" to the path`},
		{false, "", "/tools/servers/all/mcp", `adds "/tools" to the path`},
		{true, "", "/nothing", ""},
		{true, "", "/servers/all/mcp", ""},
		{false, "", "/servers/other/mcp", ""},
		{true, "/base", "/tools/mcp", ""},
	} {
		_, url := start(t, hub.Options{SingleServer: tt.alone, PathPrefix: tt.prefix}, demoSpec(t, "all"))
		_, _, body := do(t, http.MethodGet, url+tt.path, "")
		if !strings.Contains(body, tt.hint) || strings.Contains(body, "--path-prefix") != (tt.hint != "") {
			t.Errorf("%s: %s", tt.path, body)
		}
	}
}
