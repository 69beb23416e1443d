package tests

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// protected starts a bridge that accepts the access tokens of an issuer.
func protected(t testing.TB, i *issuer, flags ...string) *server {
	t.Helper()
	return serve(t, append([]string{"--oidc-issuer", i.URL, "--public-url", publicURL, "--require-scope", "mcp"}, flags...))
}

// TestServeAccessTokens: a client with an access token has every transport; one without is told where
// to get one, and so is one with a bad one, before a byte of its body is looked at. Static keys go on.
func TestServeAccessTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	record := filepath.Join(t.TempDir(), "stdin")
	config := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, config, fmt.Sprintf(`{"mcpServers":{"one":{"command":%s,"args":["-record",%s]}}}`, quote(childBin), quote(record)))
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", config, "--oidc-issuer", i.URL, "--public-url", publicURL+"/tools",
		"--require-scope", "mcp", "--token-file", tokenFile(t, "ann "+annToken), "--log-level", "trace")
	one := newSite(t, "http://"+s.host()).at("/servers/one")
	resource := publicURL + "/tools/servers/one"
	for_ := func(change map[string]any) map[string]any {
		all := map[string]any{"aud": resource + "/mcp"}
		maps.Copy(all, change)
		return all
	}
	good := i.token("bob", for_(nil))
	type badInput struct {
		status int
		code   string
		sent   http.Header
	}
	bad := map[string]badInput{
		"nothing":              {401, "", nil},
		"neighbour's audience": {401, "invalid_token", http.Header{"Authorization": {"Bearer " + i.token("bob", for_(map[string]any{"aud": publicURL + "/tools/servers/two/mcp"}))}}},
		"slash at the end":     {401, "invalid_token", http.Header{"Authorization": {"Bearer " + i.token("bob", for_(map[string]any{"aud": resource + "/mcp/"}))}}},
		"expired":              {401, "invalid_token", http.Header{"Authorization": {"Bearer " + i.token("bob", for_(map[string]any{"exp": time.Now().Add(-31 * time.Second).Unix()}))}}},
		"id token":             {401, "invalid_token", http.Header{"Authorization": {"Bearer " + i.Sign(`{"alg":"ES256","kid":"k1","typ":"id+jwt"}`, i.claims("bob", for_(nil)))}}},
		"20 KB":                {401, "invalid_token", http.Header{"Authorization": {"Bearer " + strings.Repeat("a", 20<<10)}}},
		"a key, plain":         {401, "invalid_token", http.Header{"Authorization": {"Bearer " + i.token("bob", for_(map[string]any{"cnf": map[string]any{"jkt": "x"}}))}}},
		"two tokens":           {400, "invalid_request", http.Header{"Authorization": {"Bearer " + good, "Bearer " + good}}},
		"no scope":             {403, "insufficient_scope", http.Header{"Authorization": {"Bearer " + i.token("bob", for_(map[string]any{"scope": "other"}))}}},
	}
	for what, token := range i.ForgedTokens(i.claims("bob", for_(nil))) {
		bad[what] = badInput{401, "invalid_token", http.Header{"Authorization": {"Bearer " + token}}}
	}
	for what, c := range bad {
		for _, r := range []struct{ method, path, body string }{
			{"POST", "/mcp", "{not JSON"}, {"GET", "/mcp", ""}, {"DELETE", "/mcp", ""}, {"GET", "/sse", ""}, {"POST", "/message", "{not JSON"}, {"GET", "/ws", ""},
		} {
			sent := http.Header{"Connection": {"close"}}
			if r.path == "/ws" {
				sent = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
			}
			maps.Copy(sent, c.sent)
			got := one.ask(t, r.method, r.path, r.body, sent)
			challenge := got.header.Get("WWW-Authenticate")
			where := `resource_metadata="` + publicURL + "/.well-known/oauth-protected-resource/tools/servers/one" + r.path + `"`
			if got.status != c.status || !strings.Contains(challenge, where) || !strings.Contains(challenge, `scope="mcp"`) || c.code != "" && !strings.Contains(challenge, `error="`+c.code+`"`) {
				t.Errorf("%s %s with %s: status %d, challenge %s", r.method, r.path, what, got.status, challenge)
			}
		}
	}
	if got := one.ask(t, "POST", "/mcp?access_token="+good, ping, nil); got.status != 401 {
		t.Errorf("a token in the query: %v", got)
	}
	for token, want := range map[string]int{good: 401, annToken: 200} { // the only server is not what lists the servers
		if got := newSite(t, "http://"+s.host()).bearer(token).ask(t, "GET", "/servers", "", nil); got.status != want {
			t.Errorf("the list of servers: %v, want %d", got, want)
		}
	}
	if n := i.CountRequests("/forged"); n > 0 {
		t.Errorf("%d requests for keys that a token names", n)
	}
	if read := harness.ReadFile(t, record); read != "" {
		t.Errorf("a server was started and read %q", read)
	}
	for _, transport := range transports {
		for _, who := range []*site{one.bearer(good), one.bearer(annToken), one.as("X-API-Key", annToken)} {
			mustAnswer(t, who.mustOpen(t, transport), ping)
		}
	}
	for _, place := range []string{"/tools/servers/one/mcp", "/servers/one/mcp"} {
		got := newSite(t, "http://"+s.host()).ask(t, "GET", "/.well-known/oauth-protected-resource"+place, "", nil)
		var doc struct {
			Resource             string
			AuthorizationServers []string `json:"authorization_servers"`
		}
		if err := json.Unmarshal([]byte(got.body), &doc); err != nil || doc.Resource != resource+"/mcp" || len(doc.AuthorizationServers) != 1 || doc.AuthorizationServers[0] != i.URL {
			t.Errorf("metadata at %s: %v", place, got)
		}
	}
	if out := s.Log(); strings.Contains(out, good[len(good)-40:]) || strings.Contains(out, annToken[:12]) {
		t.Error("a token is in the log")
	}
}

// TestRefusedTokensInLog: the log says at its usual level why a token is refused, on each transport, once for each reason. The token
// is not in it.
func TestRefusedTokensInLog(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	for path, sent := range map[string]http.Header{
		"/mcp": {}, "/sse": {}, "/nothing": {}, "/": {"Accept": {"text/html"}},
		"/ws": {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}},
	} {
		s := protected(t, i)
		for _, change := range []map[string]any{{"exp": time.Now().Add(-time.Hour).Unix()}, {"aud": "https://elsewhere.example"}, {"aud": "https://elsewhere.example"}} {
			if got := s.site().bearer(i.token("bob", change)).ask(t, "GET", path, "", sent); got.status != http.StatusUnauthorized {
				t.Errorf("%s: %v", path, got)
			}
		}
		s.stop()
		if out := s.Log(); strings.Count(out, " cause=expired ") != 1 || strings.Count(out, "request refused: ") != 2 || strings.Count(out, " cause=audience ") != 2 || strings.Contains(out, "elsewhere") {
			t.Errorf("%s: the log is\n%s", path, out)
		}
	}
}

// TestServeScopes: which scopes a message needs says a file, or the configuration, and both are
// loaded again.
func TestServeScopes(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	file := filepath.Join(t.TempDir(), "scopes")
	writeFile(t, file, "tools/call delete_* -> admin\n")
	s := protected(t, i, "--scope-map", file)
	few, all := s.site().bearer(i.token("bob", nil)), s.site().bearer(i.token("bob", map[string]any{"scope": "mcp admin"}))
	c := few.mustOpen(t, "mcp").(*httpTalker)
	got := few.ask(t, "POST", "/mcp", callTool("7", "delete_all"), c.headers())
	challenge := got.header.Get("WWW-Authenticate")
	if got.status != http.StatusForbidden || !strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="mcp admin"`) {
		t.Errorf("without the scope: %v, %s", got, challenge)
	}
	s.waitLog(regexp.MustCompile(`request refused: .*rule=A3 status=403 method=POST path=/mcp remote=\S+ cause=scope reason=`))
	if got := few.ask(t, "POST", "/mcp", callTool("7", "list"), c.headers()); got.status != http.StatusOK {
		t.Errorf("a tool that needs none: %v", got)
	}
	if got := all.ask(t, "POST", "/mcp", callTool("7", "delete_all"), c.headers()); got.status != http.StatusOK {
		t.Errorf("with the scope: %v", got)
	}
	for _, transport := range []string{"ws"} {
		answer := mustAnswer(t, few.mustOpen(t, transport), callTool("7", "delete_all"))
		if !strings.Contains(answer, `"insufficient_scope"`) || !strings.Contains(answer, `"mcp admin"`) {
			t.Errorf("%s: %s", transport, answer)
		}
	}
	writeFile(t, file, "tools/call list -> admin\n")
	s.waitLog(regexp.MustCompile("scope map loaded"))
	if got := few.ask(t, "POST", "/mcp", callTool("7", "list"), c.headers()); got.status != http.StatusForbidden {
		t.Errorf("after a reload: %v", got)
	}
	if got := few.ask(t, "POST", "/mcp", callTool("7", "delete_all"), c.headers()); got.status != http.StatusOK {
		t.Errorf("after a reload: %v", got)
	}
	writeFile(t, file, "# nonsense\ntools/cal list -> other\n")
	s.waitLog(regexp.MustCompile(`the scope map cannot be used.*scopes:2: .*did you mean tools/call`))
	if got := few.ask(t, "POST", "/mcp", callTool("7", "list"), c.headers()); got.status != http.StatusForbidden {
		t.Errorf("after a mistake: %v", got)
	}
}

// TestServeIntrospection: opaque tokens are asked about, and the secret of that is nowhere to be seen.
func TestServeIntrospection(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.Introspection["opaque-token-of-bob"] = i.claims("bob", map[string]any{"active": true})
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, authtest.IntrospectionClientSecret+"\n")
	s := protected(t, i, "--introspect", i.URL+"/introspect", "--introspect-client-id", "bridge", "--introspect-secret-file", secret, "--log-level", "trace")
	mustAnswer(t, s.site().bearer("opaque-token-of-bob").mustOpen(t, "mcp"), ping)
	mustAnswer(t, s.site().bearer(i.token("ann", nil)).mustOpen(t, "mcp"), ping)
	if got := s.site().bearer("opaque-token-of-eve").ask(t, "POST", "/mcp", ping, nil); got.status != http.StatusUnauthorized {
		t.Errorf("a token that is not active: %v", got)
	}
	writeFile(t, secret, "another secret\n")
	i.Change(func() { i.Introspection["new"] = i.claims("bob", map[string]any{"active": true}) })
	got := s.site().bearer("new").ask(t, "POST", "/mcp", ping, nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("the endpoint refuses us: %v", got)
	}
	s.waitLog(regexp.MustCompile("access tokens cannot be verified now"))
	for _, text := range []string{authtest.IntrospectionClientSecret, "another secret", "opaque-token-of"} {
		if strings.Contains(s.Log(), text) {
			t.Errorf("%q is in the log", text)
		}
	}
}

// TestServeProviderStopped: what is known goes on, and nobody is told that a token is not valid that
// nobody can check. Strangers cannot make the bridge ask the provider.
func TestServeProviderStopped(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.Change(func() { i.IsUnavailable = true }) // before serve asks it for the first time
	s := protected(t, i)
	got := s.site().bearer(i.token("bob", nil)).ask(t, "POST", "/mcp", ping, nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || got.header.Get("WWW-Authenticate") != "" {
		t.Errorf("without keys: %v", got)
	}
	i.Change(func() { i.IsUnavailable = false })
	s = protected(t, i)
	c := s.site().bearer(i.token("bob", nil)).mustOpen(t, "mcp")
	i.Change(func() { i.IsUnavailable = true; clear(i.RequestCounts) })
	mustAnswer(t, c, ping)
	mustAnswer(t, s.site().bearer(i.token("ann", nil)).mustOpen(t, "mcp"), ping) // one that was not seen before
	stranger := s.site()
	began := time.Now()
	const many = 300
	for n := range many {
		claims := i.claims("eve", nil)
		payload, err := json.Marshal(claims)
		bridgetest.Must(t, err)
		b64 := base64.RawURLEncoding.EncodeToString
		token := b64(fmt.Appendf(nil, `{"alg":"ES256","kid":"r%d"}`, n)) + "." + b64(payload) + "." + strings.Repeat("A", 86)
		if got := stranger.bearer(token).ask(t, "POST", "/mcp", ping, nil); got.status == http.StatusOK {
			t.Fatalf("a key that nobody has: %v", got)
		}
	}
	took := time.Since(began)
	if n, most := i.CountRequests("/jwks"), 1+int(took/(30*time.Second)); n > most { // one in 30 seconds
		t.Errorf("%d requests with random key ids made %d requests for keys in %v; want at most %d", many, n, took, most)
	}
}
