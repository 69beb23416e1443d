package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestHeadersStopAtTheBridge: what a client says in headers is for the bridge,
// and what a remote server says in headers is for the bridge: neither learns the
// other's credentials, ids or way here.
func TestHeadersStopAtTheBridge(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	u.answer = func(w http.ResponseWriter, r *http.Request, body string) {
		for name, value := range map[string]string{
			"Set-Cookie": "upsecret=1", "Www-Authenticate": "Basic realm=upsecret", "X-Up-Secret": "upsecret", "Mcp-Session-Id": "session-1", "Server": "upsecret",
			"Access-Control-Allow-Origin": "*", "Location": "http://upsecret.example/",
		} {
			w.Header().Set(name, value)
		}
		echo(w, r, body)
	}
	s := serveURL(t, u.URL, "--header", "Authorization: Bearer of-the-bridge")
	client := s.site().as(
		"Authorization", "Bearer client-secret", "Cookie", "c=client-secret", "X-Api-Key", "client-secret", "X-Anything", "client-secret", "Forwarded", "for=client-secret",
		"X-Forwarded-For", "198.51.100.77", "X-Real-Ip", "198.51.100.77", "Traceparent", "00-client-secret", "User-Agent", "client-secret", "Referer", "http://client-secret.example/",
		"Mcp-Param-X", "client-secret", "Last-Event-Id", "client-secret", "Baggage", "client-secret")
	for _, over := range transports {
		c := client.mustOpen(t, over)
		mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`)
	}
	own := client.mustOpen(t, "mcp").(*httpTalker)
	resp, err := own.request(within(t, harness.Patience), http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"echo","params":{}}`, own.headers())
	bridgetest.Must(t, err)
	resp.Body.Close()
	for name, values := range resp.Header {
		if text := strings.Join(values, " "); strings.Contains(text, "upsecret") || strings.Contains(text, "session-") {
			t.Errorf("the client is told %s: %s", name, text)
		}
	}
	for _, r := range u.saw() {
		if r.header.Get("Authorization") != "Bearer of-the-bridge" {
			t.Errorf("%s %.60s: Authorization %q, want the bridge's", r.method, r.body, r.header.Get("Authorization"))
		}
		for name, values := range r.header {
			if text := name + " " + strings.Join(values, " "); strings.Contains(text, "client-secret") || strings.Contains(text, "198.51.100.77") || strings.Contains(text, own.id) {
				t.Errorf("%s %.60s: the server is told %s", r.method, r.body, text)
			}
		}
	}
	if log := s.Log(); strings.Contains(log, "secret") || strings.Contains(log, "of-the-bridge") {
		t.Error("the log has a header's value")
	}
}

// TestRedirectsAreNotFollowed: LE14. However a server writes the address of
// somebody else, nobody is asked there, and no credential is in the error or the log.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	evil := newUpstream(t)
	away, err := url.Parse(evil.URL)
	bridgetest.Must(t, err)
	for i, to := range []string{
		evil.URL, evil.URL + "/mcp", "//" + away.Host + "/", "http://localhost:" + away.Port() + "/", "https://" + away.Host + "/", "http://user:pw@" + away.Host + "/",
		`\\` + away.Host + `\`, "http:" + away.Host, "file:///etc/passwd", "ftp://" + away.Host + "/", "gopher://" + away.Host + "/", "javascript:alert(1)", "http://%41:80/", "",
	} {
		for _, status := range []int{http.StatusTemporaryRedirect, http.StatusFound} {
			t.Run(fmt.Sprint(i, " ", status), func(t *testing.T) {
				t.Parallel()
				u := newUpstream(t)
				u.before = func(w http.ResponseWriter, _ *http.Request, body string) bool {
					if strings.Contains(body, `"away"`) {
						w.Header()["Location"] = []string{to}
						w.WriteHeader(status)
						return true
					}
					return false
				}
				p := connected(t, u, "--header", "Authorization: Bearer s3cret-of-the-user")
				p.send(`{"jsonrpc":"2.0","id":1,"method":"away"}`)
				if _, _, text := errorOf(t, p.line()); strings.Contains(text, "s3cret") || strings.Contains(text, "pw@") {
					t.Errorf("the error has the credential: %s", text)
				}
				p.send(`{"jsonrpc":"2.0","id":2,"method":"echo","params":{}}`)
				p.line()
				if log := p.Log(); strings.Contains(log, "s3cret") || strings.Contains(log, "pw@") {
					t.Error("the log has the credential")
				}
			})
		}
	}
	t.Cleanup(func() {
		if n := len(evil.saw()); n > 0 {
			t.Errorf("somebody else was asked %d times", n)
		}
	})
}
