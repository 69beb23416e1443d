package auth

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestWellKnownAddresses(t *testing.T) {
	t.Parallel()
	const resource, oauth, openid = "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	for _, test := range []struct{ got, want []string }{
		{ResourceMetadataURLs("2026-07-28", "https://h/a/mcp", ""), []string{"https://h" + resource + "/a/mcp", "https://h" + resource}},
		{ResourceMetadataURLs("", "https://h/mcp/?q=1#f", "https://h/m"), []string{"https://h/m", "https://h" + resource + "/mcp/?q=1", "https://h" + resource}},
		{ResourceMetadataURLs("2025-11-25", "https://H:8443/", ""), []string{"https://H:8443" + resource}},
		{ResourceMetadataURLs("2025-06-18", "https://h", "https://h"+resource), []string{"https://h" + resource}},
		{ResourceMetadataURLs("2025-03-26", "https://h/mcp", "https://h/m"), nil},
		{ServerMetadataURLs("2026-07-28", "https://h/t"), []string{"https://h" + oauth + "/t", "https://h" + openid + "/t", "https://h/t" + openid}},
		{ServerMetadataURLs("2025-11-25", "https://h/t/"), []string{"https://h" + oauth + "/t", "https://h" + openid + "/t", "https://h/t" + openid}},
		{ServerMetadataURLs("", "https://h"), []string{"https://h" + oauth, "https://h" + openid}},
		{ServerMetadataURLs("2025-06-18", "https://h/"), []string{"https://h" + oauth, "https://h" + openid}},
		{ServerMetadataURLs("2025-03-26", "https://h/a/mcp"), []string{"https://h" + oauth}},
	} {
		if !reflect.DeepEqual(test.got, test.want) {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		resource, server string
		want             bool
	}{
		{"https://h/mcp", "https://h/mcp", true},
		{"https://h", "https://h/mcp", true},
		{"https://h/", "https://h/mcp", true},
		{"https://H:443/a", "https://h/a/mcp", true},
		{"https://h/a/", "https://h/a/mcp", true},
		{"https://h/mcp/", "https://h/mcp", false},
		{"https://h/mc", "https://h/mcp", false},
		{"https://h/mcp/deeper", "https://h/mcp", false},
		{"https://evil/mcp", "https://h/mcp", false},
		{"http://h/mcp", "https://h/mcp", false},
		{"https://h:8443/mcp", "https://h/mcp", false},
		{"https://h/a?x=1", "https://h/a/b", false},
		{"https://h/a#f", "https://h/a/b", false},
		{"https://h/a/..", "https://h/a/../b", false},
		{"https://h/a", "https://h/a/%2E%2e/b", false},
		{"https://u@h/", "https://h/mcp", false},
		{"mcp", "https://h/mcp", false},
		{"", "https://h/mcp", false},
	} {
		if got := MetadataCovers(test.resource, test.server); got != test.want {
			t.Errorf("%q covers %q: %v", test.resource, test.server, got)
		}
	}
}

// document is metadata of an authorization server with one member changed.
func document(issuer, name string, value any) string {
	m := map[string]any{"issuer": issuer, "authorization_endpoint": issuer + "/authorize", "token_endpoint": issuer + "/token", "code_challenge_methods_supported": []string{"S256"}}
	if name != "" {
		m[name] = value
	}
	text, _ := json.Marshal(m)
	return string(text)
}

func TestServerMetadataIsRefused(t *testing.T) {
	t.Parallel()
	const issuer = "https://as"
	for _, test := range []struct {
		text string
		kind ErrorKind
		says string
	}{
		{document("https://evil", "", nil), Mismatch, "https://evil"},
		{document("https://as/", "", nil), Mismatch, "alias"},
		{document("https://AS", "", nil), Mismatch, "https://AS"},
		{document(issuer, "issuer", ""), Invalid, "issuer"},
		{document(issuer, "authorization_endpoint", "javascript:alert(1)"), Invalid, "authorization_endpoint"},
		{document(issuer, "token_endpoint", "file:///etc/passwd"), Invalid, "token_endpoint"},
		{document(issuer, "jwks_uri", "http://as/keys"), Invalid, "jwks_uri"},
		{document(issuer, "revocation_endpoint", "https://u:p@as/"), Invalid, "user name"},
		{document(issuer, "registration_endpoint", "/register"), Invalid, "registration_endpoint"},
		{document(issuer, "introspection_endpoint", "https:///x"), Invalid, "no host"},
		{document(issuer, "scopes_supported", "a b"), Invalid, "scopes_supported"},
		{document(issuer, "token_endpoint", 1), Invalid, "token_endpoint"},
		{`{"issuer":"https://as","issuer":"https://evil"}`, Invalid, "twice"},
		{`{"issuer":"https://as","x":[{"a":1,"\u0061":2}]}`, Invalid, "twice"},
		{`{"ISSUER":"https://as"}`, Invalid, "no issuer"},
		{`["issuer"]`, Invalid, "object"},
		{`{"issuer":"https://as"} {}`, Invalid, ""},
		{"{\"issuer\":\"https://as\xff\"}", Invalid, "UTF-8"},
		{strings.Repeat("[", 100), Invalid, "deep"},
		{"null", Invalid, ""}, {"", Invalid, ""},
	} {
		_, err := new(EndpointCaller).parseServerMetadata([]byte(test.text), issuer)
		if !Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.80s: %v", test.text, err)
		}
	}
	m, err := new(EndpointCaller).parseServerMetadata([]byte(document(issuer, "jwks_uri", "http://127.0.0.1:1/keys")), issuer)
	if err != nil || m.JWKSURI != "http://127.0.0.1:1/keys" || m.TokenEndpoint != "https://as/token" || m.CodeChallengeMethods[0] != "S256" {
		t.Errorf("got %+v, %v", m, err)
	}
	text, _ := json.Marshal(m)
	if again, err := new(EndpointCaller).parseServerMetadata(text, issuer); err != nil || !reflect.DeepEqual(again, m) {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
}

func TestResourceMetadataIsRefused(t *testing.T) {
	t.Parallel()
	const server = "https://h/mcp"
	for text, kind := range map[string]ErrorKind{
		`{"resource":"https://evil/mcp","authorization_servers":["https://as"]}`: Mismatch,
		`{"resource":"https://h/mcp/","authorization_servers":["https://as"]}`:   Mismatch,
		`{"resource":"https://h/mcp","authorization_servers":[]}`:                Invalid,
		`{"resource":"https://h/mcp"}`:                                           Invalid,
		`{"authorization_servers":["https://as"]}`:                               Invalid,
		`{"resource":"https://h/mcp","authorization_servers":"https://as"}`:      Invalid,
		`{"resource":"https://h/mcp","authorization_servers":[1]}`:               Invalid,
		`<html>`: Invalid,
	} {
		if _, err := ParseResourceMetadata([]byte(text), server); !Is(err, kind) {
			t.Errorf("%s: %v", text, err)
		}
	}
	m, err := ParseResourceMetadata([]byte(`{"resource":"https://h","authorization_servers":["https://as/"],"x":1,"scopes_supported":[]}`), server)
	if err != nil || m.Resource != "https://h" || m.AuthorizationServers[0] != "https://as/" || m.ScopesSupported == nil {
		t.Errorf("got %+v, %v", m, err)
	}
}

// A mistake in a member that the bridge does not use is nobody's trouble.
func TestUnusedMetadata(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"response_types_supported", "grant_types_supported", "token_endpoint_auth_signing_alg_values_supported"} {
		if _, err := new(EndpointCaller).parseServerMetadata([]byte(document("https://as", member, "x")), "https://as"); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
	const of = `{"resource":"https://h","authorization_servers":["https://as/"],"resource_name":{},"resource_documentation":1,"tls_client_certificate_bound_access_tokens":"yes"}`
	if _, err := ParseResourceMetadata([]byte(of), "https://h"); err != nil {
		t.Error(err)
	}
}

func TestServerMetadataIsFound(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"/.well-known/oauth-authorization-server/t", "/.well-known/openid-configuration/t", "/t/.well-known/openid-configuration"} {
		var asked []string
		var issuer string
		addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			if r.URL.Path != at {
				w.Header().Set("Content-Type", "text/html") // a page for everything
				_, _ = w.Write([]byte("<html>"))
				return
			}
			reply(w, 200, document(issuer, "", nil))
		})
		issuer = addr + "/t"
		m, err := c.FetchServerMetadata(within(t), "", issuer)
		if err != nil || m.Issuer != issuer || asked[len(asked)-1] != at {
			t.Errorf("%s: %+v, %v after %q", at, m, err, asked)
		}
	}
}

func TestMetadataFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		kind   ErrorKind
	}{
		"not found": {http.NotFound, NotFound},
		"forbidden": {func(w http.ResponseWriter, r *http.Request) { reply(w, 403, "{}") }, NotFound},
		"away":      {func(w http.ResponseWriter, r *http.Request) { reply(w, 503, "{}") }, Unavailable},
		"busy":      {func(w http.ResponseWriter, r *http.Request) { reply(w, 429, "{}") }, Unavailable},
		"redirect loop": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, Invalid},
		"redirect to http": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		}, Invalid},
		"redirect to a file": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}, Invalid},
		"huge": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for range 100 << 20 / 4096 {
				if _, err := fmt.Fprintf(w, "%4096s", ""); err != nil {
					return // the client has seen enough
				}
			}
		}, Invalid},
		"ends early": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{"))
			panic(http.ErrAbortHandler)
		}, Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, c := serve(t, test.answer)
			_, err := c.FetchServerMetadata(within(t), "", addr)
			if e := wantKind(t, err, test.kind); !strings.Contains(e.Error(), addr) {
				t.Errorf("the error does not say where: %v", e)
			}
			if _, err := c.FetchResourceMetadata(within(t), "", addr+"/mcp", ""); !Is(err, test.kind) {
				t.Errorf("resource: %v", err)
			}
			m, err := c.FetchOriginServerMetadata(within(t), addr+"/mcp")
			if test.kind == NotFound && (err != nil || !m.HasDefaultEndpoints || m.TokenEndpoint != addr+"/token") || test.kind != NotFound && !Is(err, test.kind) {
				t.Errorf("origin: %+v, %v", m, err)
			}
		})
	}
}

func TestMetadataAfterAnOutageIsNotAnother(t *testing.T) {
	t.Parallel()
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/mcp") {
			w.Header().Set("Retry-After", "7")
			reply(w, 503, "{}")
			return
		}
		http.NotFound(w, r)
	})
	_, err := c.FetchResourceMetadata(within(t), "", addr+"/mcp", "")
	if e := wantKind(t, err, Unavailable); e.RetryAfter.Seconds() != 7 || e.Status != 503 {
		t.Errorf("got %+v", e)
	}
}

func TestIssuerAlias(t *testing.T) {
	t.Parallel()
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("MCP-Protocol-Version"); got != "2025-03-26" {
			t.Errorf("MCP-Protocol-Version %q", got)
		}
		reply(w, 200, document("https://other", "", nil))
	})
	c.ProtocolVersion = "2025-03-26"
	_, err := c.FetchServerMetadata(within(t), "", addr)
	wantKind(t, err, Mismatch)
	c.IssuerAliases = map[string]string{addr: "https://other"}
	if m, err := c.FetchServerMetadata(within(t), "", addr); err != nil || m.Issuer != "https://other" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := c.FetchOriginServerMetadata(within(t), addr+"/mcp"); err != nil || m.Issuer != "https://other" || m.HasDefaultEndpoints {
		t.Errorf("%+v, %v", m, err)
	}
	for _, issuer := range []string{"http://as.example", "javascript:1", "https://as/?x", "https://as#x", "", "https://"} {
		if _, err := c.FetchServerMetadata(within(t), "", issuer); !Is(err, Invalid) {
			t.Errorf("%q: %v", issuer, err)
		}
	}
}

func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	document := document("http://as.lan", "jwks_uri", "http://keys.lan/")
	ask := func(r *http.Request) (*http.Response, error) {
		if r.URL.Host != "as.lan" {
			t.Errorf("asked was %s", r.URL)
		}
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(document)), Request: r}, nil
	}
	c := &EndpointCaller{HTTP: &http.Client{Transport: roundTrip(ask)}}
	_, err := c.FetchServerMetadata(within(t), "", "http://as.lan")
	if e := wantKind(t, err, Invalid); !strings.Contains(e.Error(), "--allow-private-auth") {
		t.Error(e)
	}
	c.HTTP.Transport = plainTrip{roundTrip(ask)}
	m, err := c.FetchServerMetadata(within(t), "", "http://as.lan")
	if err != nil || m.JWKSURI != "http://keys.lan/" {
		t.Errorf("%+v, %v", m, err)
	}
	for plain, want := range map[bool]bool{false: false, true: true} {
		r := AuthorizationRequest{Server: m, ClientID: "me", RedirectURI: "http://127.0.0.1/cb", State: "s", CodeChallenge: "c", AllowsPlainHTTP: plain}
		if _, err := r.URL(); (err == nil) != want {
			t.Errorf("plain %v: %v", plain, err)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type plainTrip struct{ roundTrip }

func (plainTrip) PlainHTTP() bool { return true }

func TestOriginWithASlash(t *testing.T) {
	t.Parallel()
	var addr string
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, 200, document(addr+"/", "", nil)) })
	if m, err := c.FetchOriginServerMetadata(within(t), addr+"/mcp"); err != nil || m.Issuer != addr+"/" {
		t.Errorf("%+v, %v", m, err)
	}
	_, err := c.FetchServerMetadata(within(t), "", addr)
	wantKind(t, err, Mismatch)
}

func TestRedirectsOfDocuments(t *testing.T) {
	t.Parallel()
	var issuer string
	plain, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { reply(w, 200, document(issuer, "", nil)) })
	to := plain
	issuer, c := serveWith(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			reply(w, 200, document(issuer, "", nil))
			return
		}
		http.Redirect(w, r, to, http.StatusFound)
	}, (*httptest.Server).StartTLS)
	_, err := c.FetchServerMetadata(within(t), "", issuer) // to this machine, but away from TLS
	wantKind(t, err, Invalid)
	to = "/moved"
	if m, err := c.FetchServerMetadata(within(t), "", issuer); err != nil || m.Issuer != issuer {
		t.Errorf("%+v, %v", m, err)
	}
}

func FuzzServerMetadata(f *testing.F) {
	f.Add(document("https://as", "", nil))
	f.Add(`{"issuer":"https://as","scopes_supported":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := new(EndpointCaller).parseServerMetadata([]byte(text), "https://as")
		if err == nil && (m.Issuer != "https://as" || m.TokenEndpoint != "" && checkURL(m.TokenEndpoint, false) != nil || m.AuthorizationEndpoint != "" && checkURL(m.AuthorizationEndpoint, false) != nil) {
			t.Fatalf("%q is read as %+v", text, m)
		}
	})
}

func FuzzResourceMetadata(f *testing.F) {
	f.Add(`{"resource":"https://h","authorization_servers":["https://as"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseResourceMetadata([]byte(text), "https://h/mcp")
		if err == nil && (!MetadataCovers(m.Resource, "https://h/mcp") || len(m.AuthorizationServers) == 0) {
			t.Fatalf("%q is read as %+v", text, m)
		}
	})
}
