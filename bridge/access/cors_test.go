package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// preflight sends what a browser sends before a request that carries headers.
func preflight(p *Policy, origin, headers string, more ...string) (answered bool, res *http.Response) {
	r := request("OPTIONS", "localhost:8080", append([]string{"Origin", origin,
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", headers}, more...)...)
	w := httptest.NewRecorder()
	answered = p.handleCORS(w, r)
	return answered, w.Result()
}

func checkHeader(t *testing.T, h http.Header, name, want string) {
	t.Helper()
	if got := h.Get(name); got != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// TestPreflight proves LI31 for an allowed origin.
func TestPreflight(t *testing.T) {
	p := &Policy{AllowOrigins: []string{"https://app.example"}, Loopback: true}
	for _, origin := range []string{"http://localhost:6274", "https://app.example"} {
		answered, res := preflight(p, origin,
			"authorization,content-type, mcp-protocol-version,mcp-param-x,last-event-id,accept,x-api-key")
		if !answered || res.StatusCode != http.StatusNoContent {
			t.Fatalf("%s: answered %v, status %d", origin, answered, res.StatusCode)
		}
		checkHeader(t, res.Header, "Access-Control-Allow-Origin", origin)
		checkHeader(t, res.Header, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
		checkHeader(t, res.Header, "Access-Control-Allow-Headers",
			"authorization, content-type, mcp-protocol-version, mcp-param-x, last-event-id, accept, x-api-key")
		checkHeader(t, res.Header, "Access-Control-Max-Age", "3600")
		checkHeader(t, res.Header, "Vary", "Origin")
		checkHeader(t, res.Header, "Access-Control-Allow-Credentials", "")
		checkHeader(t, res.Header, "Access-Control-Allow-Private-Network", "")
	}
}

func TestPreflightHeaders(t *testing.T) {
	tests := []struct{ requested, want string }{
		{"", ""},
		{"cookie", ""},
		{"x-evil, Content-Type", "Content-Type"},
		{"*", ""},
		{"mcp-", ""},
		{"mcp-a b", ""},
		{"mcp-\u017f", ""},
		{"mcp-x\x00", ""},
		{"mcpx", ""},
		{",, accept ,", "accept"},
		{"authorization\t,x-mcp-a", "authorization"},
	}
	for _, tt := range tests {
		_, res := preflight(&Policy{}, "http://localhost", tt.requested)
		checkHeader(t, res.Header, "Access-Control-Allow-Headers", tt.want)
	}
}

func TestPreflightPrivateNetwork(t *testing.T) {
	_, res := preflight(&Policy{}, "http://localhost", "", "Access-Control-Request-Private-Network", "true")
	checkHeader(t, res.Header, "Access-Control-Allow-Private-Network", "true")
}

// TestPreflightRefused proves that CORS is safe even without Check: LI31's
// "403 for others".
func TestPreflightRefused(t *testing.T) {
	for _, origin := range []string{"https://evil.example", "null", "", "http://localhost.evil.com"} {
		answered, res := preflight(&Policy{}, origin, "content-type", "Access-Control-Request-Private-Network", "true")
		if !answered || res.StatusCode != http.StatusForbidden {
			t.Errorf("%q: answered %v, status %d, want 403", origin, answered, res.StatusCode)
		}
		for name := range res.Header {
			if name != "Vary" {
				t.Errorf("%q: header %s in a refusal", origin, name)
			}
		}
	}
}

func TestCORSOfRequest(t *testing.T) {
	tests := []struct {
		name, method, origin, allowed string
	}{
		{"allowed", "POST", "http://localhost:3000", "http://localhost:3000"},
		{"allowed by *", "GET", "https://any.example", "https://any.example"},
		{"null", "GET", "null", ""},
		{"OPTIONS that is no preflight", "OPTIONS", "http://localhost:3000", "http://localhost:3000"},
	}
	p := &Policy{AllowOrigins: []string{"*"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if p.handleCORS(w, request(tt.method, "localhost", "Origin", tt.origin)) {
				t.Error("taken for a preflight")
			}
			expose := ""
			if tt.allowed != "" {
				expose = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce"
			}
			checkHeader(t, w.Header(), "Access-Control-Allow-Origin", tt.allowed)
			checkHeader(t, w.Header(), "Access-Control-Expose-Headers", expose)
			checkHeader(t, w.Header(), "Access-Control-Allow-Credentials", "")
			checkHeader(t, w.Header(), "Vary", "Origin")
		})
	}
	post := request("POST", "localhost", "Origin", "http://localhost", "Access-Control-Request-Method", "POST")
	if p.handleCORS(httptest.NewRecorder(), post) {
		t.Error("a POST was taken for a preflight")
	}
	w := httptest.NewRecorder()
	if p.handleCORS(w, request("POST", "localhost")) || len(w.Header()) > 0 {
		t.Errorf("no Origin: headers %v", w.Header())
	}
}

func TestTwoOriginsGetNoCORS(t *testing.T) {
	w := httptest.NewRecorder()
	(&Policy{}).handleCORS(w, request("GET", "localhost", "Origin", "http://localhost", "Origin", "http://localhost"))
	checkHeader(t, w.Header(), "Access-Control-Allow-Origin", "")
}
