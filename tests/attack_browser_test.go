package tests

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// endpoints are all paths of a bridge with one server, and a method of each.
var endpoints = map[string]string{
	"/mcp": http.MethodPost, "/sse": http.MethodGet, "/message?sessionId=x": http.MethodPost, "/ws": http.MethodGet,
	"/healthz": http.MethodGet, "/readyz": http.MethodGet, "/servers": http.MethodGet, "/nothing": http.MethodGet,
}

var upgrade = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}

// TestForeignPages: LI1. What a page of another site asks for is refused at
// every path, with every method, however its origin is spelled, and nothing in
// the reply lets the page read it.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--allow-origin", "https://*.example.com"}).site()
	for _, origin := range []string{
		"null", "https://evil.example", "http://localhost@evil.example", "http://evil.example@localhost", "http://localhost.evil.example",
		"http://evil-localhost", "http://127.0.0.1.nip.io", "http://2130706433", "http://0x7f.1", "http://127.1", "http://[::ffff:127.0.0.1]",
		"http://localho\u017ft", "http://\uff4cocalhost", "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "file://", "http://localhost:1 http://evil.example",
		"https://evilexample.com", "https://example.com", "https://.example.com", "https://a.example.com.evil.example",
		"https://a.example.com:8443", "http://a.example.com", "https://*.example.com",
	} {
		for path, method := range endpoints {
			for _, method := range []string{method, http.MethodOptions} {
				h := http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Private-Network": {"true"}}
				if path == "/ws" && method == http.MethodGet {
					for k, v := range upgrade {
						h[k] = v
					}
				}
				resp := s.ask(t, method, path, ping, h)
				if resp.status != http.StatusForbidden {
					t.Errorf("%s %s from %q: status %d, want 403", method, path, origin, resp.status)
				}
				for k := range resp.header {
					if strings.HasPrefix(k, "Access-Control-Allow-") {
						t.Errorf("%s %s from %q: the reply has %s", method, path, origin, k)
					}
				}
			}
		}
	}
	// A request without an Origin whose browser says that another site's page made it.
	for path, method := range endpoints {
		if resp := s.ask(t, method, path, ping, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}}); resp.status != http.StatusForbidden {
			t.Errorf("%s %s with Sec-Fetch-Site: cross-site: status %d, want 403", method, path, resp.status)
		}
	}
	// What a form or a script may send without asking is no message.
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "text/json", ""} {
		for _, path := range []string{"/mcp", "/message?sessionId=x"} {
			if resp := s.ask(t, http.MethodPost, path, ping, http.Header{"Content-Type": {kind}}); resp.status != http.StatusUnsupportedMediaType && path == "/mcp" || resp.status < 400 {
				t.Errorf("POST %s of %q: status %d", path, kind, resp.status)
			}
		}
	}
	// A page that may: its origin is echoed, never *, and it gets no credentials.
	resp := s.ask(t, http.MethodPost, "/mcp", ping, http.Header{"Origin": {"https://a.example.com"}})
	if h := resp.header; h.Get("Access-Control-Allow-Origin") != "https://a.example.com" || h.Get("Access-Control-Allow-Credentials") != "" || !slices.Contains(h.Values("Vary"), "Origin") {
		t.Errorf("the reply for a page that may read it has %v", h)
	}
}

// raw sends bytes on a connection of its own and returns the first line of the
// reply and all that follows until the bridge closes, or is silent for a moment.
func (s *server) raw(t testing.TB, request string) (status, rest string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.host())
	bridgetest.Must(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	bridgetest.Must(t, conn.(*net.TCPConn).CloseWrite())
	in := bufio.NewReader(conn)
	status, err = in.ReadString('\n')
	if err != nil {
		return "", err.Error()
	}
	var all strings.Builder
	_, _ = in.WriteTo(&all)
	return strings.TrimSpace(status), all.String()
}

// TestForeignHosts: LI2. A name that somebody has pointed at this machine is no
// name of the bridge, whatever the form of the request.
func TestForeignHosts(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, host := range []string{
		"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", "127.1", "0x7f.1", "2130706433",
		"[::ffff:127.0.0.1]", "[::]", "localhost@evil.example", "localhost/evil", "", "127.0.0.1.", "xn--lcalhost-abc",
	} {
		for path, method := range endpoints {
			request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", method, path, host, len(ping), ping)
			if status, _ := s.raw(t, request); !strings.Contains(status, " 403 ") && !strings.Contains(status, " 400 ") {
				t.Errorf("%s %s with Host %q: %s", method, path, host, status)
			}
		}
	}
	for what, request := range map[string]string{
		"absolute target":        "GET http://evil.example/readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
		"absolute target, other": "GET http://evil.example/readyz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
		"two":                    "GET /readyz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
		"none":                   "GET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n",
		"none in HTTP/1.0":       "GET /readyz HTTP/1.0\r\n\r\n",
	} {
		if status, _ := s.raw(t, request); !strings.Contains(status, " 403 ") && !strings.Contains(status, " 400 ") {
			t.Errorf("%s: %s", what, status)
		}
	}
	if status, rest := s.raw(t, "GET /healthz HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n"); !strings.Contains(status, " 200 ") {
		t.Errorf("a name of this machine: %s %s", status, rest)
	}
}

// TestSmuggling: RFC 9112, 6.1 and 6.3. A request whose length can be read in
// two ways is refused, and what follows it on the connection is not another request.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	const second = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	for what, request := range map[string]string{
		"two lengths":               head + "Content-Length: 4\r\nContent-Length: 5\r\n\r\n" + second,
		"a signed length":           head + "Content-Length: +5\r\n\r\nping!" + second,
		"a length and its echo":     head + "Content-Length: 5, 6\r\n\r\nping!" + second,
		"twice chunked":             head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"chunked and identity":      head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + second,
		"another coding":            head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + second,
		"a space before the colon":  head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + second,
		"a line break in a header":  head + "X: a\n Transfer-Encoding: chunked\rContent-Length: 5\r\n\r\nping!" + second,
		"a control code in a field": head + "X: a\x00b\r\nContent-Length: 0\r\n\r\n" + second,
	} {
		status, rest := s.raw(t, request)
		if !strings.Contains(status, " 400 ") && !strings.Contains(status, " 501 ") {
			t.Errorf("%s: %s", what, status)
		}
		if strings.Contains(rest, "HTTP/1.1 ") {
			t.Errorf("%s: what follows was answered, too: %q", what, rest)
		}
	}
	if status, rest := s.raw(t, head+"Content-Length: "+fmt.Sprint(len(ping))+"\r\n\r\n"+ping+second); !strings.Contains(status, " 400 ") || !strings.Contains(rest, "HTTP/1.1 200 ") {
		t.Errorf("two honest requests: %s %q, want 400 (no session), then 200", status, rest)
	}
}
