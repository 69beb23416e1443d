package hub_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// People who open the address are told where to go: browsers as HTML without a script, curl as text.
func TestFront(t *testing.T) {
	_, one := start(t, hub.Options{SingleServer: true, PathPrefix: "/tools"}, demoSpec(t, `de<b>"mo`))
	for _, at := range []string{"/", "/tools", "/tools/"} {
		for accept, kind := range map[string]string{browser: "text/html; charset=utf-8", "*/*": "text/plain; charset=utf-8", "": "text/plain; charset=utf-8"} {
			status, header, body := do(t, http.MethodGet, one+at, "", "Accept", accept)
			if status != http.StatusOK || header.Get("Content-Type") != kind || !strings.Contains(body, one+"/tools/mcp") ||
				!strings.Contains(body, strings.Replace(one, "http", "ws", 1)+"/tools/ws") || !strings.Contains(body, buildinfo.Version()) || strings.Contains(body, "<script") {
				t.Errorf("%s, Accept %q: %d %q\n%s", at, accept, status, header, body)
			}
			if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy: %q", policy)
			}
			if _, style, ok := strings.Cut(body, "<style>"); ok {
				style, _, _ = strings.Cut(style, "</style>")
				if sum := sha256.Sum256([]byte(style)); !strings.Contains(header.Get("Content-Security-Policy"), base64.StdEncoding.EncodeToString(sum[:])) {
					t.Error("the browser refuses the style: its hash is another")
				}
			}
			if kind != "text/plain; charset=utf-8" && strings.Contains(body, "<b>") {
				t.Errorf("a name is HTML: %s", body)
			}
			head, headers, nothing := do(t, http.MethodHead, one+at, "", "Accept", accept)
			if head != status || headers.Get("Content-Type") != kind || nothing != "" {
				t.Errorf("HEAD: %d %q %q", head, headers, nothing)
			}
		}
	}
	_, many := start(t, hub.Options{}, demoSpec(t, "a b"))
	if _, _, body := do(t, http.MethodGet, many+"/", ""); !strings.Contains(body, many+"/servers/a%20b/mcp") || !strings.Contains(body, many+"/servers\n") {
		t.Errorf("many servers:\n%s", body)
	}
}

// What clients write is what the operator says, whatever a request was sent to.
func TestFrontPublicURL(t *testing.T) {
	_, one := start(t, hub.Options{SingleServer: true, PathPrefix: "/tools", PublicURL: "https://mcp.example.com/tools"}, demoSpec(t, "demo"))
	_, _, body := do(t, http.MethodGet, one+"/", "")
	if !strings.Contains(body, " https://mcp.example.com/tools/mcp\n") || !strings.Contains(body, " wss://mcp.example.com/tools/ws\n") || strings.Contains(body, one) {
		t.Errorf("the page does not have the public URL:\n%s", body)
	}
}

// The page is in nobody's way: what clients of MCP send gets the answers of a path that is no endpoint.
func TestFrontIsForPeople(t *testing.T) {
	_, one := start(t, hub.Options{SingleServer: true}, demoSpec(t, "demo"))
	_, index := start(t, hub.Options{PathPrefix: "/servers"}, demoSpec(t, "demo"))
	for _, test := range []struct{ method, url, accept string }{
		{http.MethodPost, one + "/", "application/json, text/event-stream"}, {http.MethodPost, one + "/", "*/*"},
		{http.MethodGet, one + "/", "text/event-stream"}, {http.MethodGet, one + "/", "application/json"}, {http.MethodDelete, one + "/", ""},
		{http.MethodGet, one + "/x", browser},
	} {
		if status, _, body := do(t, test.method, test.url, "", "Accept", test.accept); status != http.StatusNotFound || !strings.Contains(body, "/mcp") {
			t.Errorf("%s %s, Accept %q: %d %s", test.method, test.url, test.accept, status, body)
		}
	}
	if _, header, body := do(t, http.MethodGet, index+"/servers", "", "Accept", browser); header.Get("Content-Type") != "application/json" {
		t.Errorf("the index: %q %s", header, body)
	}
}

// Who may not come in learns nothing of what is there.
func TestFrontIsGuarded(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	tokens, err := access.ParseTokens("ann " + token)
	bridgetest.Must(t, err)
	_, url := start(t, hub.Options{Guard: access.Policy{Tokens: tokens}}, demoSpec(t, "demo"))
	for _, accept := range []string{browser, "*/*"} {
		for _, credential := range []string{"", "Bearer no-such-token-is-known"} {
			status, header, body := do(t, http.MethodGet, url+"/", "", "Accept", accept, "Authorization", credential)
			if status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("Www-Authenticate"), "Bearer") || !strings.Contains(body, "mcp-bridge") || !strings.Contains(body, "TOKEN") && credential == "" ||
				strings.Contains(body, buildinfo.Version()) || strings.Contains(body, "demo") || strings.Contains(body, "/servers") {
				t.Errorf("%q, %q: %d %q\n%s", accept, credential, status, header, body)
			}
		}
		status, _, body := do(t, http.MethodGet, url+"/", "", "Accept", accept, "Authorization", "Bearer "+token)
		if status != http.StatusOK || !strings.Contains(body, "/servers") || strings.Contains(body, "demo") || strings.Contains(body, token) {
			t.Errorf("with a token: %d\n%s", status, body)
		}
	}
	_, open := start(t, hub.Options{Guard: access.Policy{Loopback: true}}, demoSpec(t, "demo"))
	for _, headers := range [][]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		if status, _, body := do(t, http.MethodGet, open+"/", "", append(headers, "Accept", browser)...); status != http.StatusForbidden || strings.Contains(body, "demo") {
			t.Errorf("%q: %d\n%s", headers, status, body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, open+"/", nil)
	bridgetest.Must(t, err)
	req.Host = "evil.example"
	resp, err := http.DefaultClient.Do(req)
	bridgetest.Must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("another Host: %d", resp.StatusCode)
	}
}

// Behind a proxy that is trusted, addresses are what its clients write.
func TestFrontBehindProxy(t *testing.T) {
	proxies, _, err := access.ParseProxies([]string{"loopback"})
	bridgetest.Must(t, err)
	_, url := start(t, hub.Options{SingleServer: true, Guard: access.Policy{TrustedProxies: proxies}}, demoSpec(t, "demo"))
	_, plain := start(t, hub.Options{SingleServer: true}, demoSpec(t, "demo"))
	for addr, want := range map[string]string{url: "https://", plain: "http://"} {
		_, host, _ := strings.Cut(addr, "://")
		if _, _, body := do(t, http.MethodGet, addr+"/", "", "X-Forwarded-Proto", "https"); !strings.Contains(body, want+host+"/mcp") {
			t.Errorf("%s is not in\n%s", want+host+"/mcp", body)
		}
	}
}
