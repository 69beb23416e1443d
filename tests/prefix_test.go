package tests

import (
	"net/http"
	"strings"
	"testing"
)

// endpointOf returns the first event of an event stream, which names the
// address for POSTs (SS1), without the session's id.
func endpointOf(t testing.TB, s *site, path string, header http.Header) string {
	t.Helper()
	resp, err := s.request(t.Context(), http.MethodGet, path, "", header)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	first, err := newStream(resp).next()
	if err != nil || first.name != "endpoint" {
		t.Fatalf("%s: the first event is %+v (%v)", path, first, err)
	}
	endpoint, _, _ := strings.Cut(first.data, "?")
	return endpoint
}

// TestPathPrefix: SS1. What a proxy has put in front is understood whether it
// takes it off again or not, and is in what clients are told.
func TestPathPrefix(t *testing.T) {
	t.Parallel()
	config := configFile(t, `{"mcpServers":{"a b":{"command":`+quote(childBin)+`}}}`)
	tools := serve(t, []string{"--path-prefix", "/tools/"})
	servers := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--path-prefix", "/x/y", "--config", config)
	one, many := tools.site(), newSite(t, "http://"+servers.host())
	// The addresses that the log has can be pasted.
	if !strings.HasSuffix(tools.url, "/tools/mcp") || !strings.HasSuffix(servers.url, "/x/y/servers") {
		t.Errorf("the log has %s and %s", tools.url, servers.url)
	}
	for _, c := range []struct {
		s            *site
		prefix, base string
	}{{one, "/tools", ""}, {many, "/x/y", "/servers/a%20b"}} {
		for _, prefix := range []string{c.prefix, ""} {
			for _, transport := range transports {
				at := c.s.at(prefix + c.base)
				if talker, ok := at.mustOpen(t, transport).(*sseTalker); ok {
					// The address that clients are told has the prefix: a proxy is there.
					if want := c.s.base + c.prefix + c.base + "/message?"; !strings.HasPrefix(talker.post, want) {
						t.Errorf("the endpoint is %s, want %s...", talker.post, want)
					}
				}
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if resp := c.s.ask(t, http.MethodGet, prefix+path, "", nil); resp.status != http.StatusOK {
					t.Errorf("%s: %v", prefix+path, resp)
				}
			}
		}
		for _, wrong := range []string{"/other", c.prefix + c.prefix, c.prefix + "x", strings.ToUpper(c.prefix)} {
			if resp := c.s.ask(t, http.MethodPost, wrong+c.base+"/mcp", initialize("2025-06-18"), nil); resp.status != http.StatusNotFound {
				t.Errorf("POST %s: %v, want 404", wrong+c.base+"/mcp", resp)
			}
		}
	}
	if resp := many.ask(t, http.MethodGet, "/servers", "", nil); !strings.Contains(resp.body, `"/x/y/servers/a%20b/mcp"`) {
		t.Errorf("/servers: %v", resp)
	}
}

// TestPathPrefixPage: the page is at the prefix. One that is the path of an endpoint itself hides it (docs/access.md).
func TestPathPrefixPage(t *testing.T) {
	t.Parallel()
	browser := http.Header{"Accept": {"text/html"}}
	for prefix, status := range map[string]int{"/tools": http.StatusOK, "/mcp": http.StatusNotAcceptable} {
		s := serve(t, []string{"--path-prefix", prefix}).site()
		for _, path := range []string{prefix, prefix + "/"} {
			resp := s.ask(t, http.MethodGet, path, "", browser)
			if resp.status != status || strings.Contains(resp.body, s.base+prefix+"/mcp") != (status == http.StatusOK) {
				t.Errorf("GET %s: %v, want %d", path, resp, status)
			}
		}
		for _, transport := range transports {
			s.at(prefix).mustOpen(t, transport)
		}
	}
}

// TestForwardedPrefix: SS1. X-Forwarded-Prefix counts when a proxy sends it
// that is trusted, and is nobody's business otherwise.
func TestForwardedPrefix(t *testing.T) {
	t.Parallel()
	trusting := serve(t, []string{"--trusted-proxy", "loopback"}).site()
	wary := serve(t, []string{"--trusted-proxy", "192.0.2.0/24"}).site()
	header := http.Header{"X-Forwarded-Prefix": {"/tools"}}
	if got := endpointOf(t, trusting, "/sse", header); got != "/tools/message" {
		t.Errorf("behind a trusted proxy the endpoint is %s", got)
	}
	if got := endpointOf(t, trusting, "/sse", nil); got != "/message" {
		t.Errorf("without the header the endpoint is %s", got)
	}
	if got := endpointOf(t, wary, "/sse", header); got != "/message" {
		t.Errorf("behind a proxy that is not trusted the endpoint is %s", got)
	}
	for _, bad := range []string{"//evil.example", "tools", "/a b", "/../x", "https://evil.example/", "/a\\b", "/a?b", "/a#b", "/%0d%0adata:x"} {
		if resp := trusting.ask(t, http.MethodGet, "/sse", "", http.Header{"X-Forwarded-Prefix": {bad}}); resp.status != http.StatusBadRequest {
			t.Errorf("X-Forwarded-Prefix: %q: %v, want 400", bad, resp)
		}
	}
}
