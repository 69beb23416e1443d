package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// roleVar makes the test binary play the part of another process.
const roleVar = "AUTHCLIENT_TEST_ROLE"

var roles = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVar)]; role != nil {
		if err := role(os.Args[1:]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	bridgetest.CheckLeaks(m)
}

// A step answers one request in the place of the fake, if it returns true.
type step func(w http.ResponseWriter, r *http.Request) bool

// A fake is an authorization server and an MCP server that do as they are told.
type fake struct {
	issuer, server string // of the metadata, and of the MCP server
	resource       string // as it is published

	mu        sync.Mutex
	prm, meta map[string]any // more of the documents; nil values remove
	life      string         // "expires_in" as JSON; "": missing
	serial    int
	access    map[string]bool   // valid access tokens
	refresh   map[string]bool   // valid refresh tokens
	spent     map[string]bool   // those that were replaced: who sends one loses all
	clients   map[string]bool   // known ids
	codes     map[string]string // the PKCE challenge of each code
	scopes    []string          // what the MCP server wants of a token
	granted   map[string]string // scope of access tokens
	next      map[string][]step // by path: for the next requests
	forms     []url.Values      // of token requests
	heads     []http.Header     // of token requests
	asked     []string          // all requests: method and path
	seen      []http.Header     // of requests to the MCP server
	bodies    []string          // registrations
	posted    []string          // bodies of requests to the MCP server
	authorize []url.Values
	challenge string // of 401
	grants    string // "scope" of answers; "": as asked
	tokenType string
}

func newFake(issuer, server string) *fake {
	return &fake{
		issuer: issuer, server: server, resource: server, life: "3600", tokenType: "Bearer",
		prm: map[string]any{}, meta: map[string]any{}, access: map[string]bool{}, refresh: map[string]bool{}, spent: map[string]bool{},
		clients: map[string]bool{"c1": true}, codes: map[string]string{}, granted: map[string]string{}, next: map[string][]step{},
	}
}

// then has the next requests of a path answered by steps.
func (f *fake) then(path string, steps ...step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[path] = append(f.next[path], steps...)
}

func answer(status int, body string, header ...string) step {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// hang answers nothing until the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	if r.URL.Path == "/token" {
		form, _ := url.ParseQuery(string(body))
		f.forms, f.heads = append(f.forms, form), append(f.heads, r.Header.Clone())
	}
	if strings.HasPrefix(r.URL.Path, "/mcp") {
		f.posted = append(f.posted, string(body))
	}
	var now step
	if s := f.next[r.URL.Path]; len(s) > 0 {
		now, f.next[r.URL.Path] = s[0], s[1:]
	}
	f.mu.Unlock()
	if now != nil && now(w, r) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource"):
		f.document(w, map[string]any{"resource": f.resource, "authorization_servers": []string{f.issuer}}, f.prm)
	case r.URL.Path == "/.well-known/oauth-authorization-server":
		f.document(w, map[string]any{
			"issuer": f.issuer, "authorization_endpoint": f.issuer + "/authorize", "token_endpoint": f.issuer + "/token",
			"registration_endpoint": f.issuer + "/register", "code_challenge_methods_supported": []string{"S256"},
			"response_types_supported": []string{"code"}, "token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "private_key_jwt"},
		}, f.meta)
	case r.URL.Path == "/token":
		form, _ := url.ParseQuery(string(body))
		f.token(w, r, form)
	case r.URL.Path == "/register":
		f.bodies = append(f.bodies, string(body))
		f.serial++
		id := fmt.Sprintf("dyn%d", f.serial)
		f.clients[id] = true
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		m["client_id"] = id
		f.json(w, 201, m)
	case r.URL.Path == "/authorize":
		f.consent(w, r)
	case r.URL.Path == "/device":
		f.json(w, 200, map[string]any{"device_code": "device-secret", "user_code": "WDJB-MJHT", "verification_uri": f.issuer + "/activate", "expires_in": 600, "interval": 5})
	case strings.HasPrefix(r.URL.Path, "/mcp"):
		f.mcp(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) document(w http.ResponseWriter, m, more map[string]any) {
	maps.Copy(m, more)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	f.json(w, 200, m)
}

func (f *fake) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *fake) refuse(w http.ResponseWriter, code string) {
	f.json(w, 400, map[string]any{"error": code})
}

// token is the token endpoint.
func (f *fake) token(w http.ResponseWriter, r *http.Request, form url.Values) {
	id, _, basic := r.BasicAuth()
	if !basic {
		id = form.Get("client_id")
	}
	if form.Has("client_assertion") && id == "" {
		id = "c1"
	}
	if !f.clients[id] && !strings.HasPrefix(id, "https://") {
		f.json(w, 401, map[string]any{"error": "invalid_client"})
		return
	}
	rotate := ""
	switch grant := form.Get("grant_type"); grant {
	case "refresh_token":
		old := form.Get("refresh_token")
		if !f.refresh[old] {
			if f.spent[old] { // the family is revoked
				clear(f.refresh)
				clear(f.access)
			}
			f.refuse(w, "invalid_grant")
			return
		}
		delete(f.refresh, old)
		f.spent[old] = true
		rotate = "r"
	case "authorization_code":
		want, ok := f.codes[form.Get("code")]
		delete(f.codes, form.Get("code"))
		if !ok || want != auth.CodeChallenge(form.Get("code_verifier")) {
			f.refuse(w, "invalid_grant")
			return
		}
		rotate = "r"
	case "urn:ietf:params:oauth:grant-type:device_code":
		rotate = "r"
	}
	f.issue(w, form, rotate)
}

// issue answers with a new token. f.mu is held.
func (f *fake) issue(w http.ResponseWriter, form url.Values, rotate string) {
	f.serial++
	access := fmt.Sprintf("access-canary-%d", f.serial)
	f.access[access] = true
	scope := form.Get("scope")
	if f.grants != "" {
		scope = f.grants
	}
	f.granted[access] = scope
	m := map[string]any{"access_token": access, "token_type": f.tokenType}
	if rotate != "" {
		m["refresh_token"] = fmt.Sprintf("refresh-canary-%d", f.serial)
		f.refresh[m["refresh_token"].(string)] = true
	}
	if f.life != "" {
		m["expires_in"] = json.RawMessage(f.life)
	}
	if f.grants != "" {
		m["scope"] = f.grants
	}
	f.json(w, 200, m)
}

// consent is the authorization endpoint, which says yes at once.
func (f *fake) consent(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f.authorize = append(f.authorize, q)
	f.serial++
	code := fmt.Sprintf("code-canary-%d", f.serial)
	f.codes[code] = q.Get("code_challenge")
	f.grants = q.Get("scope")
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if f.meta["authorization_response_iss_parameter_supported"] == true {
		back.Set("iss", f.issuer)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// mcp is the MCP server, which wants a token.
func (f *fake) mcp(w http.ResponseWriter, r *http.Request) {
	f.seen = append(f.seen, r.Header.Clone())
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	challenge := f.challenge
	if challenge == "" {
		challenge = `Bearer resource_metadata="` + strings.TrimSuffix(f.server, "/mcp") + `/.well-known/oauth-protected-resource"`
	}
	if !f.access[token] {
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(401)
		return
	}
	for _, s := range f.scopes {
		if !slices.Contains(auth.SplitScope(f.granted[token]), s) {
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+auth.JoinScope(f.scopes)+`"`)
			w.WriteHeader(403)
			return
		}
	}
	_, _ = io.WriteString(w, "served")
}

// count returns how many requests there were for a path.
func (f *fake) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, a := range f.asked {
		if strings.HasSuffix(a, " "+path) {
			n++
		}
	}
	return n
}

// A wire carries requests to handlers by host, without a network, so that time can be that of a synctest bubble.
type wire map[string]http.Handler

func (n wire) RoundTrip(r *http.Request) (*http.Response, error) {
	h := n[r.URL.Host]
	if h == nil {
		return nil, fmt.Errorf("no such host")
	}
	body := []byte(nil)
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{})
	}
	rec, done := httptest.NewRecorder(), make(chan struct{})
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), strings.NewReader(string(body)))
	in.Header = r.Header.Clone()
	go func() {
		h.ServeHTTP(rec, in)
		close(done)
	}()
	select {
	case <-done:
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context()) // as net/http
		}
		resp := rec.Result()
		resp.Request = r
		return resp, nil
	case <-r.Context().Done():
		<-done
		return nil, context.Cause(r.Context())
	}
}

const (
	testServer = "https://mcp.test/mcp"
	testIssuer = "https://as.test"
)

// A world is a fake and what a client needs to use it.
type world struct {
	*fake
	wire  wire
	store *tokenstore.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	f := newFake(testIssuer, testServer)
	s, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: filepath.Join(t.TempDir(), "auth")})
	bridgetest.Must(t, err)
	return &world{f, wire{"mcp.test": f, "as.test": f}, s}
}

// options are those of a client that somebody has registered.
func (w *world) options() Options {
	return Options{Store: w.store, Server: w.server, HTTPClient: &http.Client{Transport: w.wire}, ClientID: "c1"}
}

// credential returns a new Credential, as another process would have it.
func (w *world) credential(t *testing.T, o Options) *Credential {
	t.Helper()
	c, err := New(o)
	bridgetest.Must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// sign stores a credential that the fake knows. life 0: nobody says when it ends.
func (w *world) sign(t *testing.T, c *Credential, life time.Duration) {
	t.Helper()
	now := c.now()
	w.mu.Lock()
	w.serial++
	s := tokenstore.Credential{
		Server: w.server, Issuer: w.issuer, TokenEndpoint: w.issuer + "/token", ClientID: "c1", Resource: w.resource, TokenType: "Bearer", IssuedAt: now,
		AccessToken:  tokenstore.NewSecret(fmt.Sprintf("access-canary-%d", w.serial)),
		RefreshToken: tokenstore.NewSecret(fmt.Sprintf("refresh-canary-%d", w.serial)),
	}
	w.access[s.AccessToken.Reveal()], w.refresh[s.RefreshToken.Reveal()] = true, true
	w.mu.Unlock()
	if life != 0 {
		s.ExpiresAt = now.Add(life)
	}
	bridgetest.Must(t, w.store.WithLock(t.Context(), c.key, func(l *tokenstore.LockedCredential) error {
		_, err := l.Save(s, l.Entry().Generation)
		return err
	}))
}

// access returns the access token that a Credential would use.
func access(t *testing.T, c *Credential) string {
	t.Helper()
	token, err := c.Token(t.Context())
	bridgetest.Must(t, err)
	return token.AccessToken
}

// stored returns what is in the store.
func (w *world) stored(t *testing.T, c *Credential) tokenstore.Credential {
	t.Helper()
	e, err := w.store.Load(t.Context(), c.key)
	bridgetest.Must(t, err)
	return e.Credential
}

// wantCount checks how many requests there were.
func (w *world) wantCount(t *testing.T, path string, want int) {
	t.Helper()
	if n := w.count(path); n != want {
		t.Errorf("%d requests for %s, want %d", n, path, want)
	}
}

// wantNoSecret checks that no secret is in a text.
func wantNoSecret(t *testing.T, what any) {
	t.Helper()
	if text := fmt.Sprintf("%v %+v %#v", what, what, what); strings.Contains(text, "canary") {
		t.Errorf("a secret is in %s", text)
	}
}
