// Package authtest has an MCP server that asks for a token, and its authorization server, for tests that need both behind
// real sockets.
package authtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Server is an MCP server that asks for a token, and its authorization server, at one origin. It has no login: whoever
// opens the authorization page counts as signed in. Its methods may be called concurrently, but HoldAuthorization and
// HoldRegistration only before clients come.
type Server struct {
	URL string // address of the MCP server

	origin        string        // scheme, host and port: the issuer
	authorizeGate chan struct{} // closed by the approve of HoldAuthorization; nil: the page does not wait

	registerStarted chan struct{} // what HoldRegistration returns; nil: registrations do not wait
	registerRelease chan struct{} // closed by the refuse of HoldRegistration

	mu                 sync.Mutex      // guards the fields below
	requestCounts      map[string]int  // how many requests the server got, by path
	validTokens        map[string]bool // the access tokens that are valid
	validCodes         map[string]bool // the authorization codes that were issued and not used
	lastSecretNumber   int             // the number in what was issued last: a code, or an access token and its refresh token
	offersDevice       bool            // OfferDevice was called
	userDenies         bool            // DenySignIn was called
	callsNeedScopeMore bool            // RequireScopeMore was called
	refusesAllTokens   bool            // the last argument of RefuseAllTokens
	scopeMoreHolders   map[string]bool // codes and tokens that have the scope "more"
}

// New starts a Server on a port of this machine, which ends with the test.
func New(t *testing.T) *Server {
	h := httptest.NewUnstartedServer(nil)
	s := ServerAt("http://" + h.Listener.Addr().String()) // whole before it serves: another test may ask who had this port before
	h.Config.Handler = s
	h.Start()
	t.Cleanup(func() {
		h.CloseClientConnections() // of a browser that nobody has let in yet, which Close would wait for
		h.Close()
	})
	return s
}

// ServerAt returns a Server for a test that serves it itself, at an origin such as https://mcp.example.com.
func ServerAt(origin string) *Server {
	return &Server{origin: origin, URL: origin + "/mcp", requestCounts: map[string]int{}, validTokens: map[string]bool{}, validCodes: map[string]bool{}, scopeMoreHolders: map[string]bool{}}
}

// HoldAuthorization makes the authorization page wait until approve is called. Call it before the page is opened.
func (s *Server) HoldAuthorization() (approve func()) {
	s.authorizeGate = make(chan struct{})
	return func() { close(s.authorizeGate) }
}

// HoldRegistration makes registrations wait until refuse is called, and then fail, as do all later ones. For each that
// waits something can be received from registering. Call it before the first registration.
func (s *Server) HoldRegistration() (registering <-chan struct{}, refuse func()) {
	s.registerStarted, s.registerRelease = make(chan struct{}), make(chan struct{})
	return s.registerStarted, func() { close(s.registerRelease) }
}

// OfferDevice makes the server offer device codes, which count as approved at once.
func (s *Server) OfferDevice() { s.change(func() { s.offersDevice = true }) }

// RequireScopeMore makes tools/call need a token with the scope "more", which clients do not ask for at first.
func (s *Server) RequireScopeMore() { s.change(func() { s.callsNeedScopeMore = true }) }

// RefuseAllTokens makes the MCP server refuse every token, as one does that expects another audience; with false it
// accepts valid ones again.
func (s *Server) RefuseAllTokens(other bool) { s.change(func() { s.refusesAllTokens = other }) }

// DenySignIn makes the person refuse from now on: the authorization page answers access_denied.
func (s *Server) DenySignIn() { s.change(func() { s.userDenies = true }) }

// change calls f while no request is served.
func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// CountRequests returns how many requests the Server got for a path.
func (s *Server) CountRequests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requestCounts[path]
}

// CountValidTokens returns how many access tokens are valid.
func (s *Server) CountValidTokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.validTokens)
}

// RevokeAllTokens makes all access tokens invalid that were issued so far. Those that are issued later are valid.
func (s *Server) RevokeAllTokens() { s.change(func() { clear(s.validTokens) }) }

// ServeHTTP implements http.Handler: the MCP server at /mcp, metadata, and the endpoints of the authorization server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.change(func() { s.requestCounts[r.URL.Path]++ })
	if r.URL.Path == "/authorize" && s.authorizeGate != nil {
		select {
		case <-s.authorizeGate:
		case <-r.Context().Done():
			return
		}
	}
	if r.URL.Path == "/register" && s.registerStarted != nil {
		select {
		case s.registerStarted <- struct{}{}:
		case <-s.registerRelease:
		}
		<-s.registerRelease
		http.Error(w, "", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	form, _ := url.ParseQuery(string(body))
	switch path := r.URL.Path; {
	case path == "/mcp":
		s.serveMCP(w, r, body)
	case strings.HasPrefix(path, "/.well-known/oauth-protected-resource"):
		replyJSON(w, 200, map[string]any{"resource": s.URL, "authorization_servers": []string{s.origin}, "scopes_supported": []string{"tools"}})
	case path == "/.well-known/oauth-authorization-server":
		m := map[string]any{
			"issuer": s.origin, "authorization_endpoint": s.origin + "/authorize", "token_endpoint": s.origin + "/token", "registration_endpoint": s.origin + "/register",
			"revocation_endpoint": s.origin + "/revoke", "code_challenge_methods_supported": []string{"S256"}, "response_types_supported": []string{"code"},
			"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"},
		}
		if s.offersDevice {
			m["device_authorization_endpoint"] = s.origin + "/device"
		}
		replyJSON(w, 200, m)
	case path == "/register":
		m := map[string]any{}
		_ = json.Unmarshal(body, &m)
		m["client_id"] = "registered"
		replyJSON(w, 201, m)
	case path == "/authorize":
		s.serveAuthorize(w, r)
	case path == "/device":
		replyJSON(w, 200, map[string]any{"device_code": recordSecrets("device-canary-" + rand.Text()), "user_code": "WDJB-MJHT", "verification_uri": s.origin + "/activate", "expires_in": 600, "interval": 1})
	case path == "/token":
		s.serveToken(w, form)
	case path == "/revoke":
		delete(s.validTokens, form.Get("token"))
		w.WriteHeader(200)
	default:
		http.NotFound(w, r)
	}
}

// replyJSON answers a request with this status and v as JSON.
func replyJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// serveMCP answers a request to the MCP server: 401 without a valid token. body is what was sent.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, body []byte) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	recordSecrets(token)
	if !s.validTokens[token] || s.refusesAllTokens {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer resource_metadata=%q", s.origin+"/.well-known/oauth-protected-resource/mcp"))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodGet { // it says nothing by itself
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m)
	answer := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch {
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case m.Method == "tools/call" && s.callsNeedScopeMore && !s.scopeMoreHolders[token]:
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="more"`)
		w.WriteHeader(http.StatusForbidden)
		return
	case m.Method == "tools/call":
		answer["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "done"}}}
	case m.Method == "initialize":
		answer["result"] = map[string]any{"protocolVersion": m.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "authtest", "version": "1"}}
	case m.Method == "tools/list":
		answer["result"] = map[string]any{"tools": []any{}}
	case m.Method == "ping":
		answer["result"] = map[string]any{}
	default:
		answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
	}
	replyJSON(w, 200, answer)
}

// serveAuthorize answers the authorization page: it sends the browser back with a code, or with access_denied.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := url.Values{"state": {q.Get("state")}}
	if s.userDenies {
		back.Set("error", "access_denied")
	} else {
		s.lastSecretNumber++
		code := recordSecrets(fmt.Sprintf("code-canary-%d-%s", s.lastSecretNumber, rand.Text()))
		s.validCodes[code], s.scopeMoreHolders[code] = true, hasScopeMore(q.Get("scope"))
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// hasScopeMore reports whether a scope parameter names the scope "more".
func hasScopeMore(scope string) bool { return slices.Contains(strings.Fields(scope), "more") }

// serveToken answers a token request with new tokens, whatever its grant is; a code must be valid.
func (s *Server) serveToken(w http.ResponseWriter, form url.Values) {
	for _, name := range []string{"code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion", "subject_token"} {
		recordSecrets(form.Get(name))
	}
	if grant := form.Get("grant_type"); grant == "authorization_code" {
		if !s.validCodes[form.Get("code")] || form.Get("code_verifier") == "" {
			replyJSON(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		delete(s.validCodes, form.Get("code"))
	}
	s.lastSecretNumber++
	access := recordSecrets(fmt.Sprintf("access-canary-%d-%s", s.lastSecretNumber, rand.Text()))
	s.scopeMoreHolders[access] = s.scopeMoreHolders[form.Get("code")]
	s.validTokens[access] = true
	answer := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "scope": "tools"}
	if form.Get("grant_type") != "client_credentials" { // RFC 6749, 4.4.3
		answer["refresh_token"] = recordSecrets(fmt.Sprintf("refresh-canary-%d-%s", s.lastSecretNumber, rand.Text()))
	}
	replyJSON(w, 200, answer)
}
