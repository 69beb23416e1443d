package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func request(method, host string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "/mcp", nil)
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// status is what Check makes of a request; 0 means that it is served.
func status(p *Policy, r *http.Request) int {
	if refusal := p.Check(r); refusal != nil {
		return refusal.Status
	}
	return 0
}

// TestOrigin proves LI1: 403 for an origin that is present and not allowed,
// with every method.
func TestOrigin(t *testing.T) {
	tests := []struct {
		name    string
		allow   string // space separated
		origins []string
		want    int
	}{
		{"none", "", nil, 0},
		{"loopback http", "", []string{"http://localhost:6274"}, 0},
		{"loopback https", "", []string{"https://localhost"}, 0},
		{"loopback upper case", "", []string{"HTTP://LOCALHOST:1"}, 0},
		{"loopback IPv4", "", []string{"http://127.0.0.1:3000"}, 0},
		{"loopback IPv4, not .1", "", []string{"http://127.4.5.6"}, 0},
		{"loopback IPv6", "", []string{"http://[::1]:3000"}, 0},
		{"below localhost", "", []string{"http://app.localhost:3000"}, 0},
		{"another site", "", []string{"http://evil.example"}, 403},
		{"same as Host", "", []string{"http://server.example:8080"}, 403},
		{"null", "", []string{"null"}, 403},
		{"null with *", "*", []string{"null"}, 403},
		{"empty", "", []string{""}, 403},
		{"two", "", []string{"http://localhost", "http://localhost"}, 403},
		{"two in one", "", []string{"http://localhost, http://evil.example"}, 403},
		{"two by space", "", []string{"http://localhost http://evil.example"}, 403},
		{"name begins like it", "", []string{"http://localhost.evil.com"}, 403},
		{"name ends like it", "", []string{"http://evillocalhost"}, 403},
		{"nip.io", "", []string{"http://127.0.0.1.nip.io"}, 403},
		{"user", "", []string{"http://localhost@evil.com"}, 403},
		{"user and port", "", []string{"http://localhost:80@evil.com"}, 403},
		{"user before", "", []string{"http://evil.com@localhost"}, 403},
		{"backslash", "", []string{`http://evil.com\.localhost`}, 403},
		{"path", "", []string{"http://localhost/"}, 403},
		{"query", "", []string{"http://evil.com?.localhost"}, 403},
		{"fragment", "", []string{"http://evil.com#.localhost"}, 403},
		{"percent", "", []string{"http://evil.com%2f.localhost"}, 403},
		{"no scheme", "", []string{"localhost"}, 403},
		{"no host", "", []string{"http://"}, 403},
		{"file", "", []string{"file://"}, 403},
		{"scheme of an app", "", []string{"tauri://localhost"}, 403},
		{"bad port", "", []string{"http://localhost:port"}, 403},
		{"empty port", "", []string{"http://localhost:"}, 403},
		{"port too large", "", []string{"http://localhost:65536"}, 403},
		{"long s", "", []string{"http://localho\u017ft"}, 403},
		{"zone", "", []string{"http://[::1%25eth0]"}, 403},
		{"mapped", "", []string{"http://[::ffff:127.0.0.1]"}, 403},
		{"decimal", "", []string{"http://2130706433"}, 403},
		{"hex", "", []string{"http://0x7f.0.0.1"}, 403},
		{"short", "", []string{"http://127.1"}, 403},
		{"octal", "", []string{"http://0177.0.0.1"}, 403},
		{"any", "", []string{"http://0.0.0.0"}, 403},

		{"allowed", "https://app.example", []string{"https://app.example"}, 0},
		{"allowed, case", "https://App.Example", []string{"https://app.example"}, 0},
		{"allowed second", "https://a.example https://b.example:8443", []string{"https://b.example:8443"}, 0},
		{"loopback beside allowed", "https://app.example", []string{"http://localhost"}, 0},
		{"other scheme", "https://app.example", []string{"http://app.example"}, 403},
		{"other port", "https://app.example", []string{"https://app.example:8443"}, 403},
		{"no port", "https://app.example:8443", []string{"https://app.example"}, 403},
		{"below allowed", "https://app.example", []string{"https://x.app.example"}, 403},
		{"longer", "https://app.example", []string{"https://app.example.evil.com"}, 403},
		{"app scheme", "vscode-webview://abc", []string{"vscode-webview://abc"}, 0},
		{"wildcard", "https://*.app.example", []string{"https://x.app.example"}, 0},
		{"wildcard, two labels", "https://*.app.example", []string{"https://x.y.app.example"}, 0},
		{"wildcard, port", "https://*.app.example:8443", []string{"https://x.app.example:8443"}, 0},
		{"wildcard, other port", "https://*.app.example", []string{"https://x.app.example:8443"}, 403},
		{"wildcard, other scheme", "https://*.app.example", []string{"http://x.app.example"}, 403},
		{"wildcard, the name itself", "https://*.app.example", []string{"https://app.example"}, 403},
		{"wildcard, not a label", "https://*.app.example", []string{"https://evilapp.example"}, 403},
		{"wildcard, empty label", "https://*.app.example", []string{"https://.app.example"}, 403},
		{"wildcard, sent", "https://*.app.example", []string{"https://*.app.example"}, 403},
		{"wildcard of a number", "http://*.0.0.1", []string{"http://10.0.0.1"}, 403},
		{"every origin", "*", []string{"https://evil.example"}, 0},
		{"every origin, malformed", "*", []string{"https://evil.example/x"}, 403},
		{"entry that is not valid", "app.example https://", []string{"https://app.example"}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &Policy{AllowOrigins: strings.Fields(tt.allow)}
			for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS"} {
				r := request(method, "server.example:8080")
				for _, o := range tt.origins {
					r.Header.Add("Origin", o)
				}
				if got := status(p, r); got != tt.want {
					t.Errorf("%s: status %d, want %d", method, got, tt.want)
				}
			}
		})
	}
}

// Who is refused for the Host hears which one it was: a name alone, and not at any length.
func TestHostIsNamed(t *testing.T) {
	for host, want := range map[string]string{
		"mcp.example:8080":                    "host mcp.example is not allowed (--allow-host)",
		strings.Repeat("a", 200) + ".example": "host " + strings.Repeat("a", 100) + "... is not allowed (--allow-host)",
		"<b>":                                 "Host header is missing or malformed",
	} {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Host = host
		if no := (&Policy{Loopback: true}).Check(r); no == nil || no.Reason != want {
			t.Errorf("%.30s: %v; want %s", host, no, want)
		}
	}
}

// Who is refused for the Origin hears which one it was, as far as it is one: a user or a path in it may be a secret.
func TestOriginIsNamed(t *testing.T) {
	for origin, want := range map[string]string{
		"https://evil.example:8443":                     "origin https://evil.example:8443 is not allowed (--allow-origin)",
		"chrome-extension://abc":                        "origin chrome-extension://abc is not allowed (--allow-origin)",
		"null":                                          "origin null is not allowed (--allow-origin)",
		"https://me:hush@evil.example":                  "origin is not allowed (--allow-origin)",
		"https://evil.example/hush":                     "origin is not allowed (--allow-origin)",
		"https://evil.example\x1b[31m":                  "origin is not allowed (--allow-origin)",
		"https://" + strings.Repeat("a", 200) + ".evil": "origin https://" + strings.Repeat("a", 92) + "... is not allowed (--allow-origin)",
	} {
		r := httptest.NewRequest("POST", "/mcp", nil)
		r.Host = "localhost"
		r.Header.Set("Origin", origin)
		if no := (&Policy{Loopback: true}).Check(r); no == nil || no.Reason != want {
			t.Errorf("%.30s: %v; want %s", origin, no, want)
		}
	}
}

// TestHost proves LI2: on a loopback address only a loopback Host is served.
func TestHost(t *testing.T) {
	tests := []struct {
		host, allow string
		want        int
	}{
		{"localhost", "", 0},
		{"localhost:8080", "", 0},
		{"LocalHost:8080", "", 0},
		{"localhost.", "", 0},
		{"localhost.:8080", "", 0},
		{"app.localhost:8080", "", 0},
		{"127.0.0.1", "", 0},
		{"127.0.0.1:8080", "", 0},
		{"127.255.0.9:8080", "", 0},
		{"[::1]", "", 0},
		{"[::1]:8080", "", 0},
		{"[0:0:0:0:0:0:0:1]:8080", "", 0},

		{"evil.example", "", 403},
		{"evil.example:8080", "", 403},
		{"localhost.evil.com", "", 403},
		{"127.0.0.1.nip.io", "", 403},
		{"notlocalhost", "", 403},
		{"localhost.localdomain", "", 403},
		{"0.0.0.0:8080", "", 403},
		{"192.168.1.5", "", 403},
		{"2130706433", "", 403},
		{"0x7f000001", "", 403},
		{"0x7f.1", "", 403},
		{"127.1", "", 403},
		{"127.0.0.01", "", 403},
		{"127.0.0.1.", "", 403},
		{"[::]:8080", "", 403},
		{"[::2]", "", 403},
		{"[::ffff:127.0.0.1]", "", 403},

		{"", "", 400},
		{":8080", "", 400},
		{".localhost", "", 400},
		{"a..localhost", "", 400},
		{"localhost..", "", 400},
		{"user@localhost", "", 400},
		{"localhost:80@evil.com", "", 400},
		{"localhost:", "", 400},
		{"localhost:x", "", 400},
		{"localhost:-1", "", 400},
		{"localhost:+1", "", 400},
		{"localhost:99999", "", 400},
		{"localhost:80:80", "", 400},
		{"localhost/x", "", 400},
		{"localhost ", "", 400},
		{"localho\u017ft", "", 400},
		{"evil.com%2f.localhost", "", 400},
		{"::1", "", 400},
		{"[::1", "", 400},
		{"[::1]x", "", 400},
		{"[::1%25lo]", "", 400},
		{"[::1%lo]:80", "", 400},
		{"[127.0.0.1]", "", 400},
		{"[localhost]", "", 400},
		{"[]", "", 400},

		{"mcp.example.com", "mcp.example.com", 0},
		{"MCP.example.com.:8080", "mcp.example.com", 0},
		{"x.mcp.example.com", "mcp.example.com", 403},
		{"10.0.0.9:80", "10.0.0.9", 0},
		{"x.example.com", "*.example.com", 0},
		{"example.com", "*.example.com", 403},
		{"anything.example", "*", 0},
		{"not a host", "*", 400},
		{"localhost", "mcp.example.com", 0},
	}
	for _, tt := range tests {
		t.Run(tt.host+" "+tt.allow, func(t *testing.T) {
			p := &Policy{Loopback: true, AllowHosts: strings.Fields(tt.allow)}
			if got := status(p, request("POST", tt.host)); got != tt.want {
				t.Errorf("bound to loopback: status %d, want %d", got, tt.want)
			}
			if got := status(&Policy{}, request("POST", tt.host)); got != 0 {
				t.Errorf("bound elsewhere: status %d, want every Host served", got)
			}
		})
	}
	r := request("POST", "localhost", "Host", "localhost")
	if got := status(&Policy{}, r); got != 400 {
		t.Errorf("two Host headers: status %d, want 400", got)
	}
}

func TestCrossSiteWithoutOrigin(t *testing.T) {
	image := request("GET", "localhost", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")
	if got := status(&Policy{}, image); got != 403 {
		t.Errorf("image on another site: status %d, want 403", got)
	}
	if got := status(&Policy{AllowOrigins: []string{"*"}}, image); got != 0 {
		t.Errorf("every site allowed: status %d, want it served", got)
	}
	typed := request("GET", "localhost", "Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate")
	if got := status(&Policy{}, typed); got != 0 {
		t.Errorf("address typed by the user: status %d, want it served", got)
	}
}
