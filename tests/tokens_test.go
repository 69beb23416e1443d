package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// Tokens of clients, and what asks for them.
const (
	annToken = "0123456789abcdef-of-ann"
	bobToken = "0123456789abcdef-of-bob"

	ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
)

func tokenFile(t testing.TB, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, file, strings.Join(lines, "\n")+"\n")
	return file
}

// bearer returns the same site for who has a token.
func (s *site) bearer(token string) *site { return s.as("Authorization", "Bearer "+token) }

// TestServeTokens: A2, A7. Without a token nobody gets further than 401 with
// WWW-Authenticate, at every path, whatever the method and however wrong the
// rest of the request is; with one, in either header, everything works.
func TestServeTokens(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	tokens := tokenFile(t, "# clients", "ann "+annToken, "", "bob\t"+bobToken)
	config := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, config, fmt.Sprintf(`{"mcpServers":{"one":{"command":%s,"args":["-record",%s]}}}`, quote(childBin), quote(record)))
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", tokens, "--config", config)
	root := newSite(t, "http://"+s.host())
	one := root.at("/servers/one")
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	for _, r := range []struct {
		method, path, body string
		header             http.Header
	}{
		{"POST", "/mcp", initialize("2025-06-18"), nil},
		{"POST", "/mcp", "{not JSON", http.Header{"Content-Type": {"text/plain"}, "Accept": {"image/png"}}},
		{"POST", "/mcp", ping, http.Header{"Mcp-Session-Id": {"no-such-session"}, "Mcp-Protocol-Version": {"1999"}}},
		{"GET", "/mcp", "", nil},
		{"DELETE", "/mcp", "", http.Header{"Mcp-Session-Id": {"no-such-session"}}},
		{"PUT", "/mcp", "", nil},
		{"GET", "/sse", "", nil},
		{"POST", "/message?sessionId=no-such-session", "{not JSON", nil},
		{"POST", "/message", ping, nil},
		{"GET", "/ws", "", upgrade},
		{"GET", "/ws", "", nil},
		{"GET", "/nothing", "", nil},
	} {
		for what, sent := range map[string]http.Header{
			"no token":         nil,
			"a wrong token":    {"Authorization": {"Bearer " + strings.Repeat("x", 32)}},
			"a wrong key":      {"X-Api-Key": {strings.Repeat("x", 32)}},
			"another scheme":   {"Authorization": {"Basic YW5uOjAxMjM0NTY3ODlhYmNkZWY="}},
			"two credentials":  {"Authorization": {"Bearer " + annToken}, "X-Api-Key": {bobToken}},
			"two headers":      {"Authorization": {"Bearer " + annToken, "Bearer " + bobToken}},
			"half a token":     {"Authorization": {"Bearer " + annToken[:16]}},
			"a longer token":   {"Authorization": {"Bearer " + annToken + "x"}},
			"a name, no token": {"Authorization": {"Bearer ann"}},
		} {
			for k, v := range r.header {
				if sent == nil {
					sent = http.Header{}
				}
				sent[k] = v
			}
			resp := one.ask(t, r.method, r.path, r.body, sent)
			challenge := resp.header.Get("WWW-Authenticate")
			if resp.status != http.StatusUnauthorized || !strings.HasPrefix(challenge, "Bearer") {
				t.Errorf("%s %s with %s: status %d, WWW-Authenticate %q", r.method, r.path, what, resp.status, challenge)
			}
			if strings.Contains(resp.body, annToken[:8]) {
				t.Errorf("%s %s with %s: the reply repeats the token: %s", r.method, r.path, what, resp.body)
			}
		}
		// A5. Not in the URL, where logs and browsers keep it.
		separator := "?"
		if strings.Contains(r.path, "?") {
			separator = "&"
		}
		for _, name := range []string{"access_token", "token", "api_key"} {
			if resp := one.ask(t, r.method, r.path+separator+name+"="+annToken, r.body, r.header); resp.status != http.StatusUnauthorized {
				t.Errorf("%s %s with the token in the URL as %s: %v", r.method, r.path, name, resp)
			}
		}
	}
	if resp := root.ask(t, http.MethodGet, "/servers", "", nil); resp.status != http.StatusUnauthorized || strings.Contains(resp.body, "one") {
		t.Errorf("/servers without a token: %v", resp)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if resp := root.ask(t, http.MethodGet, path, "", nil); resp.status != http.StatusOK || strings.Contains(resp.body, "one") {
			t.Errorf("%s without a token: %v, want 200 and no names", path, resp)
		}
	}
	if read := harness.ReadFile(t, record); read != "" {
		t.Errorf("a server was started and read %q", read)
	}

	if resp := root.bearer(annToken).ask(t, http.MethodGet, "/servers", "", nil); resp.status != http.StatusOK || !strings.Contains(resp.body, `"one"`) {
		t.Errorf("/servers with a token: %v", resp)
	}
	for _, transport := range transports {
		for _, who := range []*site{one.bearer(annToken), one.as("X-API-Key", bobToken), one.as("Authorization", "bearer "+annToken)} {
			mustAnswer(t, who.mustOpen(t, transport), ping)
		}
	}
	if read := harness.ReadFile(t, record); strings.Contains(read, "0123456789abcdef") {
		t.Error("a token reached the server")
	}
	if out := s.Log(); strings.Contains(out, "0123456789abcdef") {
		t.Error("a token is in the log")
	}
}

// TestServeTokensBindSessions: LI25, SS4. A session belongs to the name that
// opened it, with whichever token; to others it does not exist.
func TestServeTokensBindSessions(t *testing.T) {
	t.Parallel()
	const other = "0123456789abcdef-of-ann-too"
	s := serve(t, []string{"--token-file", tokenFile(t, "ann "+annToken, "ann "+other, "bob "+bobToken)}).site()
	c := s.bearer(annToken).mustOpen(t, "mcp").(*httpTalker)
	for _, r := range []struct{ method, body string }{{"POST", ping}, {"GET", ""}, {"DELETE", ""}} {
		if resp := s.bearer(bobToken).ask(t, r.method, "/mcp", r.body, c.headers()); resp.status != http.StatusNotFound {
			t.Errorf("%s of ann's session by bob: %v, want 404", r.method, resp)
		}
		if resp := s.ask(t, r.method, "/mcp", r.body, c.headers()); resp.status != http.StatusUnauthorized {
			t.Errorf("%s of ann's session by nobody: %v, want 401", r.method, resp)
		}
	}
	if resp := s.bearer(other).ask(t, http.MethodPost, "/mcp", ping, c.headers()); resp.status != http.StatusOK {
		t.Errorf("ann's session by ann, with another token: %v", resp)
	}
	mustAnswer(t, c, ping)

	e := s.bearer(annToken).mustOpen(t, "sse").(*sseTalker)
	if resp := s.bearer(bobToken).ask(t, http.MethodPost, e.post, ping, nil); resp.status != http.StatusNotFound {
		t.Errorf("POST to ann's stream by bob: %v, want 404", resp)
	}
	mustAnswer(t, e, ping)
}

// TestServeTokensReload: a new token works and one that is gone does not, once
// the file says so, without a signal; a file with a mistake changes nothing and
// is named, with its line. A session outlives the token that opened it if its
// owner has another one; a connection does not.
func TestServeTokensReload(t *testing.T) {
	t.Parallel()
	const next = "fedcba9876543210-of-ann"
	file := tokenFile(t, "ann "+annToken, "bob "+bobToken)
	p := serve(t, []string{"--token-file", file})
	s := p.site()
	status := func(token string) int {
		return s.bearer(token).ask(t, http.MethodPost, "/mcp", "", nil).status
	}
	ann, bob := map[string]talker{}, map[string]talker{}
	for _, transport := range transports {
		ann[transport] = s.bearer(annToken).mustOpen(t, transport)
		bob[transport] = s.bearer(bobToken).mustOpen(t, transport)
	}

	replaceFile(t, file, "ann "+annToken+"\nann "+next+"\nbob "+bobToken+"\n")
	harness.WaitUntil(t, "the new token to be good", func() bool { return status(next) != http.StatusUnauthorized })
	mustAnswer(t, ann["mcp"], ping)

	writeFile(t, file, "ann "+next+"\nbob short\n")
	p.waitLog(regexp.MustCompile(`(?i)\[ERROR\].*` + regexp.QuoteMeta(file) + `:2: `))
	if status(annToken) == http.StatusUnauthorized || status(bobToken) == http.StatusUnauthorized {
		t.Error("a broken file has taken tokens away")
	}

	replaceFile(t, file, "ann "+next+"\n")
	harness.WaitUntil(t, "the old token to be refused", func() bool { return status(annToken) == http.StatusUnauthorized })
	if got := status(bobToken); got != http.StatusUnauthorized {
		t.Errorf("bob, who is gone: status %d, want 401", got)
	}
	if got := status(next); got == http.StatusUnauthorized {
		t.Errorf("ann's new token: status %d", got)
	}
	c := ann["mcp"].(*httpTalker)
	if resp := s.bearer(next).ask(t, http.MethodPost, "/mcp", ping, c.headers()); resp.status != http.StatusOK {
		t.Errorf("ann's session, after a change of her token: %v", resp)
	}
	// What a token has opened ends with it: others may know it, which is why it is gone.
	for name, opened := range map[string]map[string]talker{"ann": ann, "bob": bob} {
		if e, err := opened["sse"].(*sseTalker).in.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s's event stream goes on: %+v %v", name, e, err)
		}
		_, _, err := opened["ws"].(*wsTalker).conn.Read(t.Context())
		if code := websocket.CloseStatus(err); code != websocket.StatusPolicyViolation {
			t.Errorf("%s's WebSocket was closed with %v (%v), want 1008", name, code, err)
		}
	}
	mustAnswer(t, s.bearer(next).mustOpen(t, "ws"), ping)
}

// A11: a token file that is emptied, has comments only, or is removed takes all tokens away; what they have
// opened ends, and the log says that nobody is let in. New tokens are good again. A file that is gone for
// a moment only, as while it is written anew, ends nothing.
func TestServeTokensGone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, file string) error{
		"comments": func(t *testing.T, file string) error { replaceFile(t, file, "# ann "+annToken+"\n"); return nil },
		"empty":    func(_ *testing.T, file string) error { return os.Truncate(file, 0) },
		"removed":  func(_ *testing.T, file string) error { return os.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := tokenFile(t, "ann "+annToken)
			p := serve(t, []string{"--token-file", file})
			s := p.site()
			opened := map[string]talker{}
			for _, transport := range transports {
				opened[transport] = s.bearer(annToken).mustOpen(t, transport)
			}
			// An editor that removes the file first.
			bridgetest.Must(t, os.Remove(file))
			writeFile(t, file, "ann "+annToken+"\nbob "+bobToken+"\n")
			p.waitLog(regexp.MustCompile(`tokens loaded.*names=2`))
			for _, transport := range transports {
				mustAnswer(t, opened[transport], ping)
			}

			bridgetest.Must(t, end(t, file))
			harness.WaitUntil(t, "the tokens to be refused", func() bool {
				return s.bearer(annToken).ask(t, http.MethodPost, "/mcp", "", nil).status == http.StatusUnauthorized
			})
			p.waitLog(regexp.MustCompile(`\[ERROR\].*nobody is let in`))
			if e, err := opened["sse"].(*sseTalker).in.next(); !errors.Is(err, io.EOF) {
				t.Errorf("the event stream goes on: %+v %v", e, err)
			}
			_, _, err := opened["ws"].(*wsTalker).conn.Read(t.Context())
			if code := websocket.CloseStatus(err); code != websocket.StatusPolicyViolation {
				t.Errorf("the WebSocket was closed with %v (%v), want 1008", code, err)
			}
			id := opened["mcp"].(*httpTalker).headers()

			writeFile(t, file, "ann "+bobToken+"\n")
			harness.WaitUntil(t, "the new token to be good", func() bool {
				return s.bearer(bobToken).ask(t, http.MethodPost, "/mcp", "", nil).status != http.StatusUnauthorized
			})
			if no := s.bearer(bobToken).ask(t, http.MethodPost, "/mcp", ping, id); no.status != http.StatusNotFound {
				t.Errorf("the session from before is there: %v", no)
			}
		})
	}
	for name, text := range map[string]string{"empty": "", "comments": "# nobody\n"} {
		file := filepath.Join(t.TempDir(), "tokens")
		writeFile(t, file, text)
		if code := start(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", file, "--", childBin).wait(); code != 2 {
			t.Errorf("%s at the start: exit status %d, want 2", name, code)
		}
	}
}

// TestServeTokensEnvironment: MCP_BRIDGE_TOKENS is as good as a file, and no
// server sees it, whatever it is to inherit.
func TestServeTokensEnvironment(t *testing.T) {
	t.Parallel()
	env := []string{"MCP_BRIDGE_TOKENS=ann " + annToken + ";bob " + bobToken, "OTHER=1"}
	s := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--pass-env", "all", "--", childBin).site()
	if resp := s.ask(t, http.MethodPost, "/mcp", initialize("2025-06-18"), nil); resp.status != http.StatusUnauthorized {
		t.Errorf("without a token: %v, want 401", resp)
	}
	for _, token := range []string{annToken, bobToken} {
		c := s.bearer(token).mustOpen(t, "mcp")
		for name, set := range map[string]string{"MCP_BRIDGE_TOKENS": "false", "OTHER": "true"} {
			if got := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"env","params":{"text":"`+name+`"}}`); !strings.Contains(got, `"set":`+set) {
				t.Errorf("in the server's environment %s is %s", name, got)
			}
		}
	}
	p := start(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--token-file", tokenFile(t, "ann "+annToken), "--", childBin)
	if code := p.wait(); code != 2 {
		t.Errorf("both file and variable: exit status %d, want 2", code)
	}
	p = start(t, []string{"MCP_BRIDGE_TOKENS="}, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin)
	if code := p.wait(); code != 2 {
		t.Errorf("an empty variable, which would mean no tokens at all: exit status %d, want 2", code)
	}
}

// TestServePublic: A9. An address that other machines can reach is bound only
// if everybody must say who they are, or with --insecure.
func TestServePublic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, "ca")
	ca.issue(t, dir, "server")
	withTLS := []string{"--tls-cert", filepath.Join(dir, "server.pem"), "--tls-key", filepath.Join(dir, "server.key")}
	for name, c := range map[string]struct {
		flags []string
		ok    bool
	}{
		"nobody authenticated":    {nil, false},
		"TLS alone":               {withTLS, false},
		"one of two is public":    {[]string{"--listen", "127.0.0.1:0"}, false},
		"tokens":                  {[]string{"--token-file", tokenFile(t, "ann "+annToken)}, true},
		"certificates of clients": {append([]string{"--tls-client-ca", ca.write(t, dir)}, withTLS...), true},
		"access tokens":           {[]string{"--oidc-issuer", "https://id.example", "--audience", "mcp"}, true},
		"insecure":                {[]string{"--insecure"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, addr := range []string{"0.0.0.0:0", ":0"} {
				p := start(t, nil, append(append([]string{bridgeBin, "serve", "--listen", addr}, c.flags...), "--", childBin)...)
				if c.ok {
					p.addresses(1)
					p.stop()
					continue
				}
				if code := p.wait(); code != 2 || !strings.Contains(p.Log(), "--insecure") || announced.MatchString(p.Log()) {
					t.Errorf("%s: exit status %d, want 2, and stderr should name --insecure", addr, code)
				}
			}
		})
	}
}
