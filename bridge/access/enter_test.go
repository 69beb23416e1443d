package access

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const (
	tokenA  = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	tokenA2 = "AAAAAAAAAAAAAAAA"
	tokenB  = "b~._-+/=!;#:,*b6"
)

func mustParse(t *testing.T, text string) *Tokens {
	t.Helper()
	tokens, err := ParseTokens(text)
	bridgetest.Must(t, err)
	return tokens
}

// enter is what Enter makes of a request.
func enter(p *Policy, r *http.Request) (got *http.Request, no *Refusal, h http.Header) {
	w := httptest.NewRecorder()
	got, no = p.Enter(w, r)
	return got, no, w.Header()
}

// A token without a scheme is not taken for no credential at all.
func TestTokenWithoutScheme(t *testing.T) {
	p := &Policy{Tokens: mustParse(t, "alice "+tokenA)}
	for _, value := range []string{tokenA, "Basic " + tokenA} {
		_, no, _ := enter(p, request("POST", "localhost", "Authorization", value))
		if no == nil || !strings.Contains(no.Reason, "no Bearer token") || strings.Contains(no.Reason, tokenA) {
			t.Errorf("%v", no)
		}
	}
}

// TestTokenCarriers proves A2, A5 and RFC 6750's challenges.
func TestTokenCarriers(t *testing.T) {
	p := &Policy{Tokens: mustParse(t, "alice "+tokenA+"\nalice "+tokenA2+"\nbob@example.com "+strings.ReplaceAll(tokenB, ";", "_"))}
	bob := strings.ReplaceAll(tokenB, ";", "_")
	tests := []struct {
		name      string
		header    []string
		query     string
		principal string // "" means 401
		challenge string // what follows the realm
	}{
		{"bearer", []string{"Authorization", "Bearer " + tokenA}, "", "alice", ""},
		{"second token of a name", []string{"Authorization", "Bearer " + tokenA2}, "", "alice", ""},
		{"other name", []string{"Authorization", "Bearer " + bob}, "", "bob@example.com", ""},
		{"scheme without case", []string{"Authorization", "bEARER " + tokenA}, "", "alice", ""},
		{"more spaces", []string{"Authorization", "Bearer   " + tokenA + " "}, "", "alice", ""},
		{"key", []string{"X-API-Key", tokenA}, "", "alice", ""},
		{"key with spaces", []string{"x-api-key", " " + tokenA + "\t"}, "", "alice", ""},
		{"both, the same", []string{"Authorization", "Bearer " + tokenA, "X-API-Key", tokenA}, "", "alice", ""},
		{"both, one empty", []string{"Authorization", "Bearer " + tokenA, "X-API-Key", ""}, "", "alice", ""},
		{"query of ours", []string{"X-API-Key", tokenA}, "sessionId=access_token&x=token", "alice", ""},

		{"none", nil, "", "", ""},
		{"no token", []string{"Authorization", "Bearer "}, "", "", ""},
		{"empty", []string{"Authorization", ""}, "", "", ""},
		{"empty key", []string{"X-API-Key", " "}, "", "", ""},
		{"other scheme", []string{"Authorization", "Basic " + tokenA}, "", "", ""},
		{"scheme missing", []string{"Authorization", tokenA}, "", "", ""},
		{"scheme run into the token", []string{"Authorization", "Bearer" + tokenA}, "", "", ""},

		{"wrong", []string{"Authorization", "Bearer x"}, "", "", `, error="invalid_token"`},
		{"wrong key", []string{"X-API-Key", "x"}, "", "", `, error="invalid_token"`},
		{"beginning of a token", []string{"X-API-Key", tokenA[:63]}, "", "", `, error="invalid_token"`},
		{"longer than a token", []string{"X-API-Key", tokenA + "a"}, "", "", `, error="invalid_token"`},
		{"a name", []string{"X-API-Key", "alice"}, "", "", `, error="invalid_token"`},
		{"other case", []string{"X-API-Key", strings.ToUpper(tokenA)}, "", "", `, error="invalid_token"`},

		{"two different", []string{"Authorization", "Bearer " + tokenA, "X-API-Key", bob}, "", "", `, error="invalid_request"`},
		{"two different of one name", []string{"Authorization", "Bearer " + tokenA, "X-API-Key", tokenA2}, "", "", `, error="invalid_request"`},
		{"two lines", []string{"Authorization", "Bearer " + tokenA, "Authorization", "Bearer " + tokenA}, "", "", `, error="invalid_request"`},
		{"two keys", []string{"X-API-Key", tokenA, "X-API-Key", tokenA}, "", "", `, error="invalid_request"`},

		{"query", nil, "access_token=" + tokenA, "", `, error="invalid_request"`},
		{"query and header", []string{"X-API-Key", tokenA}, "a=b&token=" + tokenA, "", `, error="invalid_request"`},
		{"query, another name", nil, "api_key=" + tokenA, "", `, error="invalid_request"`},
		{"query, case", nil, "Access_Token=" + tokenA, "", `, error="invalid_request"`},
		{"query, escaped", nil, "acces%73_token=" + tokenA, "", `, error="invalid_request"`},
		{"query, semicolon", nil, "a=b;token=" + tokenA, "", `, error="invalid_request"`},
		{"query, no value", nil, "token", "", `, error="invalid_request"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS"} { // OPTIONS: no preflight
				r := request(method, "localhost", tt.header...)
				r.URL.RawQuery = tt.query
				got, no, h := enter(p, r)
				if tt.principal != "" {
					if no != nil || Principal(got) != tt.principal || len(h) != 0 {
						t.Errorf("%s: refusal %v, principal %q, want %q", method, no, Principal(got), tt.principal)
					}
					continue
				}
				if no == nil || no.Status != http.StatusUnauthorized || !strings.Contains(no.Reason, "Authorization: Bearer TOKEN") || strings.Contains(no.Reason, tokenA) {
					t.Fatalf("%s: refusal %v, want 401 that says what to send", method, no)
				}
				if Principal(got) != "" {
					t.Errorf("%s: refused, with principal %q", method, Principal(got))
				}
				checkHeader(t, h, "WWW-Authenticate", `Bearer realm="mcp-bridge"`+tt.challenge)
			}
		})
	}
}

// TestEnterOrder proves A7's order: Host and Origin, preflights, and then
// tokens; and LI31: a page of an allowed origin can read the 401.
func TestEnterOrder(t *testing.T) {
	p := &Policy{Loopback: true, Tokens: mustParse(t, "alice "+tokenA)}
	token := []string{"Authorization", "Bearer " + tokenA}
	for _, tt := range []struct {
		host, origin string
		token        []string
		want         int
	}{
		{"evil.example", "", nil, 403},
		{"evil.example", "", token, 403},
		{"localhost", "https://evil.example", token, 403},
		{"localhost", "http://localhost:3000", nil, 401},
		{"localhost", "http://localhost:3000", token, 0},
	} {
		r := request("POST", tt.host, tt.token...)
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		_, no, h := enter(p, r)
		if got := refused(no); got != tt.want {
			t.Errorf("%+v: status %d", tt, got)
		}
		readable := ""
		if tt.want != 403 {
			readable = tt.origin
		}
		checkHeader(t, h, "Access-Control-Allow-Origin", readable)
		if tt.want == 403 {
			checkHeader(t, h, "WWW-Authenticate", "")
		}
	}

	w := httptest.NewRecorder()
	r, no := p.Enter(w, request("OPTIONS", "localhost", "Origin", "http://localhost:3000", "Access-Control-Request-Method", "POST"))
	if r != nil || no != nil || w.Code != http.StatusNoContent {
		t.Errorf("a preflight without a token: %v, %v, status %d", r, no, w.Code)
	}
}

func refused(no *Refusal) int {
	if no == nil {
		return 0
	}
	return no.Status
}

// issue returns a certificate as a TLS listener reads it.
func issue(t *testing.T, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	bridgetest.Must(t, err)
	template.SerialNumber = big.NewInt(1)
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	bridgetest.Must(t, err)
	c, err := x509.ParseCertificate(der)
	bridgetest.Must(t, err)
	return c
}

// A10: certificates that have the same word in different places are different principals, and so are those
// of which one has more in its subject; the same subject in another certificate is the same one.
func TestCertificateKinds(t *testing.T) {
	cn := asn1.ObjectIdentifier{2, 5, 4, 3}
	templates := []x509.Certificate{
		{Subject: pkix.Name{CommonName: "ann"}},
		{Subject: pkix.Name{CommonName: "ann", Organization: []string{"other"}}},
		{Subject: pkix.Name{CommonName: "ann", Organization: []string{"other", "more"}}},
		{Subject: pkix.Name{CommonName: "ann,O=other"}},
		{Subject: pkix.Name{CommonName: "ann+O=other"}},
		{Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: cn, Value: "bob"}, {Type: cn, Value: "ann"}}}},
		{Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: cn, Value: "ann"}, {Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "x"}}}},
		{DNSNames: []string{"ann"}},
		{DNSNames: []string{"dns=ann"}},
		{Subject: pkix.Name{CommonName: "dns=ann"}},
		{EmailAddresses: []string{"ann"}},
		{URIs: []*url.URL{{Scheme: "spiffe", Host: "ann"}}},
		{Subject: pkix.Name{CommonName: "spiffe://ann"}},
		{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
		{Subject: pkix.Name{CommonName: "10.0.0.1"}},
		{Subject: pkix.Name{Organization: []string{"ann"}}},
	}
	names := map[string]int{}
	for i := range templates {
		for range 2 {
			r := request("POST", "localhost")
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{issue(t, &templates[i])}}}
			got, no, _ := enter(&Policy{}, r)
			if no != nil {
				t.Fatal(no)
			}
			name := Principal(got)
			if other, taken := names[name]; taken && other != i {
				t.Errorf("certificates %d and %d are both %q", other, i, name)
			}
			names[name] = i
		}
	}
	// Each has one name, but for the one that is known by its hash.
	if len(names) != len(templates)+1 {
		t.Errorf("%d certificates, issued twice, have the names %v", len(templates), names)
	}
}

// TestEnterCertificate: a verified TLS certificate is a principal, unless
// tokens are asked for.
func TestEnterCertificate(t *testing.T) {
	uri, _ := url.Parse("spiffe://example/x")
	tests := []struct {
		cert x509.Certificate
		want string
	}{
		{x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"a.example"}}, "cert:cn=alice"},
		{x509.Certificate{DNSNames: []string{"a.example", "b.example"}}, "cert:dns=a.example"},
		{x509.Certificate{EmailAddresses: []string{"a@b"}}, "cert:email=a@b"},
		{x509.Certificate{URIs: []*url.URL{uri}}, "cert:uri=spiffe://example/x"},
		{x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}, "cert:ip=10.0.0.1"},
		{x509.Certificate{}, "cert:sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	}
	for _, tt := range tests {
		r := request("POST", "localhost")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&tt.cert}}
		if got, no, _ := enter(&Policy{}, r); no != nil || got != r {
			t.Errorf("%s: a certificate that was not verified counted", tt.want)
		}
		r.TLS.VerifiedChains = [][]*x509.Certificate{{&tt.cert}}
		if got, no, _ := enter(&Policy{}, r); no != nil || Principal(got) != tt.want {
			t.Errorf("principal %q, want %q", Principal(got), tt.want)
		}
		p := &Policy{Tokens: mustParse(t, "bob "+tokenA)}
		if _, no, _ := enter(p, r); refused(no) != 401 {
			t.Errorf("%s: served without a token", tt.want)
		}
		r.Header.Set("X-API-Key", tokenA)
		if got, _, _ := enter(p, r); Principal(got) != "bob" {
			t.Errorf("%s: principal %q, want that of the token", tt.want, Principal(got))
		}
	}
}

// TestEnterCost: requests that need no token cost nothing, those that do only
// the context that carries the name.
func TestEnterCost(t *testing.T) {
	w := httptest.NewRecorder()
	open := &Policy{Loopback: true}
	r := request("POST", "localhost:8080")
	if n := testing.AllocsPerRun(100, func() { _, _ = open.Enter(w, r) }); n != 0 {
		t.Errorf("%v allocations without authentication", n)
	}
	p := &Policy{Tokens: mustParse(t, "alice "+tokenA)}
	r = request("POST", "localhost:8080", "Authorization", "Bearer "+tokenA)
	r.URL.RawQuery = "sessionId=x"
	floor := testing.AllocsPerRun(100, func() { WithPrincipal(r, "alice") })
	if n := testing.AllocsPerRun(100, func() { _, _ = p.Enter(w, r) }); n > floor {
		t.Errorf("%v allocations to find a token, want the %v of WithPrincipal", n, floor)
	}
}

// TestEnterOnUnixSocket: tokens are asked for on every listener alike.
func TestEnterOnUnixSocket(t *testing.T) {
	p := &Policy{Tokens: mustParse(t, "alice "+tokenA)}
	if _, no, _ := enter(p, onUnix(request("POST", "localhost"))); refused(no) != 401 {
		t.Errorf("status %d, want 401", refused(no))
	}
}

func onUnix(r *http.Request) *http.Request {
	r.RemoteAddr = "@"
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Net: "unix"}))
}

func FuzzTokenInQuery(f *testing.F) {
	for _, s := range []string{"", "token", "a=b&api_key=x", "%74oken=1", "&&=&", "a;token"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, _ := url.ParseQuery(query) // what it leaves out, a lax reader may take
		for name := range values {
			switch strings.ToLower(name) {
			case "access_token", "token", "api_key":
				if !TokenInQuery(query) {
					t.Errorf("%q has %q", query, name)
				}
			}
		}
	})
}
