package resource

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// let fails the test unless a request is let through, and returns it as it goes on.
func let(t *testing.T, p *Protector, r *http.Request) *http.Request {
	t.Helper()
	r, no := p.Authenticate(http.Header{}, r)
	if no != nil {
		t.Fatal(no)
	}
	return r
}

func post(token string) *http.Request { return request(http.MethodPost, "/mcp", "Bearer "+token) }

// TestGrant shows what the request of a good token carries.
func TestGrant(t *testing.T) {
	t.Parallel()
	p, as, _ := setup(t, nil)
	for range 2 { // verified, and remembered
		r := let(t, p, post(as.token(t, nil)))
		g := GrantOf(r.Context())
		if g.Subject != "ann" || g.ClientID != "c1" || auth.JoinScope(g.Scopes) != "mcp read" || g.HasAllScopes || !g.Expires.Equal(start.Add(time.Hour)) {
			t.Errorf("grant %+v", g)
		}
		if g.Principal == "" || access.Principal(r) != g.Principal || identity.Principal(r.Context()) != g.Principal || (&access.Policy{}).Party(r) != g.Principal {
			t.Errorf("principals %q, %q, %q", g.Principal, access.Principal(r), identity.Principal(r.Context()))
		}
	}
	principals := map[string]bool{}
	for _, change := range []map[string]any{nil, {"sub": "bob"}, {"client_id": "c2"}, {"sub": "annc1", "client_id": nil}, {"sub": nil}} {
		principals[GrantOf(let(t, p, post(as.token(t, change))).Context()).Principal] = true
	}
	if len(principals) != 5 {
		t.Errorf("%d principals of 5", len(principals))
	}
	if a, b := let(t, p, post(as.token(t, nil))), let(t, p, post(as.token(t, map[string]any{"scope": "mcp more", "jti": "2"}))); access.Principal(a) != access.Principal(b) {
		t.Error("a new token is of another principal")
	}
	want(t, p, "Bearer "+as.token(t, map[string]any{"aud": []string{"x", public + "/sse"}}), 200)
}

// TestSeveral shows issuers, resources and static keys beside each other.
func TestSeveral(t *testing.T) {
	t.Parallel()
	second := newProvider(t)
	sum := sha256.Sum256([]byte("hashed-key-0123456789"))
	p, first, _ := setup(t, func(_ *provider, o *Options) {
		o.Issuers = append(o.Issuers, Issuer{URL: second.URL, Audiences: []string{"api://tools"}, JWKSURL: second.URL + "/jwks"})
		o.Resources = []Resource{{Paths: []string{"/mcp", "/sse"}}, {Paths: []string{"/b/mcp"}}}
		o.StaticKeys = parseTokens(t, "ci plain-key-0123456789\nops sha256:"+hex.EncodeToString(sum[:]))
	})
	api := second.token(t, map[string]any{"aud": "api://tools"})
	for _, test := range []struct {
		token, path string
		code        int
	}{
		{first.token(t, nil), "/mcp", 200},
		{first.token(t, nil), "/sse", 200},
		{first.token(t, nil), "/b/mcp", 401}, // of the neighbour
		{first.token(t, nil), "/b/mcp/", 401},
		{first.token(t, nil), "/mcp/", 200},
		{first.token(t, nil), "/else", 401},
		{api, "/else", 200},
		{first.token(t, map[string]any{"aud": public + "/b/mcp"}), "/b/mcp", 200},
		{first.token(t, map[string]any{"aud": "api://tools"}), "/mcp", 401},
		{api, "/mcp", 200},
		{api, "/b/mcp", 200},
		{second.token(t, nil), "/mcp", 401},
		{authtest.SignText(t, second.Key, `{"alg":"ES256","kid":"k1"}`, toJSON(t, first.claims(nil))), "/mcp", 401},
		{"plain-key-0123456789", "/b/mcp", 200},
		{"hashed-key-0123456789", "/mcp", 200},
		{hex.EncodeToString(sum[:]), "/mcp", 401},
		{"sha256:" + hex.EncodeToString(sum[:]), "/mcp", 401},
	} {
		for range 2 {
			if code, _ := status(p, request(http.MethodGet, test.path, "Bearer "+test.token)); code != test.code {
				t.Errorf("%.20s at %s: %d, want %d", test.token, test.path, code, test.code)
			}
		}
	}
	if n := second.CountRequests("/.well-known/oauth-authorization-server"); n != 0 {
		t.Errorf("metadata asked for %d times although the keys' address is given", n)
	}
	r := request(http.MethodGet, "/mcp", "")
	r.Header.Set("X-API-Key", "plain-key-0123456789")
	if g := GrantOf(let(t, p, r).Context()); g.Principal != "ci" || !g.HasAllScopes {
		t.Errorf("grant %+v", g)
	}
	r.Header.Set("Authorization", "Bearer "+api)
	if code, _ := status(p, r); code != 400 {
		t.Errorf("two credentials: %d", code)
	}
	want(t, p, "DPoP plain-key-0123456789", 401)
}

// TestForgets shows that the memory of tokens is bounded, and that nothing is valid because of it.
func TestForgets(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, func(_ *provider, o *Options) { o.MaxRememberedTokens = 10 })
	first := as.token(t, nil)
	for range 40 {
		want(t, p, "Bearer "+as.token(t, nil), 200)
	}
	want(t, p, "Bearer "+first, 200)
	if n := len(p.verifiedTokens.byHash); n > 10 {
		t.Errorf("%d tokens are remembered", n)
	}
	clock.add(time.Hour + 29*time.Second)
	want(t, p, "Bearer "+first, 200)
	clock.add(time.Second)
	want(t, p, "Bearer "+first, 401)
}

// TestIntrospection shows how often the endpoint is asked, and what its answers mean.
func TestIntrospection(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(authtest.IntrospectionClientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, as, clock := setup(t, func(as *provider, o *Options) {
		o.Issuers = nil
		o.Introspection = &Introspection{Endpoint: as.URL + "/introspect", Issuer: as.URL, ClientID: "bridge", ClientSecret: SecretFromFile(secret)}
	})
	active := func(change map[string]any) map[string]any {
		m := as.claims(change)
		m["active"] = true
		return m
	}
	as.Change(func() {
		as.Introspection["good"] = active(nil)
		as.Introspection["short"] = active(map[string]any{"exp": start.Add(10 * time.Second).Unix()})
		as.Introspection["other"] = active(map[string]any{"aud": "other"})
		as.Introspection["noaud"] = active(map[string]any{"aud": nil})
		as.Introspection["issuer"] = active(map[string]any{"iss": "https://other.example"})
		as.Introspection["expired"] = active(map[string]any{"exp": start.Add(-31 * time.Second).Unix()})
		as.Introspection["odd"] = active(map[string]any{"cnf": map[string]any{"kid": "x"}})
		as.Introspection["bound"] = active(map[string]any{"cnf": map[string]any{"jkt": "x"}})
	})
	step := func(token string, code, asked int) {
		t.Helper()
		want(t, p, "Bearer "+token, code)
		if n := as.CountRequests("/introspect"); n != asked {
			t.Errorf("%s: asked %d times, want %d", token, n, asked)
		}
	}
	step("good", 200, 1)
	step("good", 200, 1)
	step("short", 200, 2)
	clock.add(39 * time.Second)
	step("good", 200, 2)
	step("short", 200, 2)
	clock.add(2 * time.Second)
	step("short", 401, 3)
	clock.add(19 * time.Second)
	step("good", 200, 4)
	for i, token := range []string{"other", "noaud", "issuer", "expired", "unknown"} {
		step(token, 401, 5+i)
		step(token, 401, 5+i)
	}
	clock.add(5 * time.Second)
	step("unknown", 401, 10)
	step("bound", 401, 11)
	step("odd", 401, 12)
	as.Change(func() { as.IsUnavailable = true })
	step("good", 200, 12)
	step("new", 503, 13)
	clock.add(time.Minute)
	step("good", 503, 14)
	as.Change(func() { as.IsUnavailable = false })
	if err := os.WriteFile(secret, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("good", 503, 15)
	if runtime.GOOS != "windows" {
		if err := os.Chmod(secret, 0o604); err != nil {
			t.Fatal(err)
		}
		step("good", 503, 15)
	}
}

// TestDPoP shows proofs, replays and nonces.
func TestDPoP(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, func(_ *provider, o *Options) { o.RequiresNonces, o.DPoP = true, DPoPRequire })
	prover, err := auth.NewProver(authtest.NewKey(t), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.NewProver(authtest.NewKey(t), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	token := as.token(t, map[string]any{"cnf": map[string]any{"jkt": prover.Thumbprint()}})
	send := func(by *auth.Prover, addr, access string) (*http.Request, int, http.Header) {
		t.Helper()
		proof, err := by.Proof(http.MethodPost, addr, access)
		if err != nil {
			t.Fatal(err)
		}
		r := request(http.MethodPost, "/mcp?x=y", "DPoP "+token)
		r.Header.Set("DPoP", proof)
		code, h := status(p, r)
		return r, code, h
	}
	_, code, h := send(prover, audience, token)
	if d := demand(t, h); code != 401 || d.ErrorCode != "use_dpop_nonce" || h.Get("DPoP-Nonce") == "" || !d.AcceptsDPoP || d.AcceptsBearer || len(d.DPoPAlgs) == 0 {
		t.Errorf("without a nonce: %d %v", code, h)
	}
	if !prover.LearnNonce(audience, h) || !other.LearnNonce(audience, h) {
		t.Fatal("the nonce cannot be used")
	}
	r, code, h := send(prover, audience, token)
	if code != 200 {
		t.Errorf("good proof: %d %v", code, h)
	}
	if code, h := status(p, r); code != 401 || demand(t, h).ErrorCode != "invalid_dpop_proof" {
		t.Errorf("replayed: %d %v", code, h)
	}
	for name, c := range map[string]struct {
		by            *auth.Prover
		addr, forWhat string
	}{"other key": {other, audience, token}, "other address": {prover, public + "/sse", token}, "other token": {prover, audience, token + "x"}} {
		if _, code, h := send(c.by, c.addr, c.forWhat); code != 401 || demand(t, h).ErrorCode != "invalid_dpop_proof" {
			t.Errorf("%s: %d %v", name, code, h)
		}
	}
	clock.add(11 * time.Minute)
	if _, code, h := send(prover, audience, token); code != 401 || demand(t, h).ErrorCode != "use_dpop_nonce" {
		t.Errorf("old nonce: %d %v", code, h)
	}
	want(t, p, "Bearer "+as.token(t, nil), 401) // not bound
}

// TestReasons: who is refused is told what to send, and nothing of what was sent.
func TestReasons(t *testing.T) {
	t.Parallel()
	for scheme, mode := range map[string]DPoPMode{"Bearer TOKEN": DPoPAuto, "DPoP TOKEN, with a proof in the header DPoP": DPoPRequire} {
		p, as, clock := setup(t, func(_ *provider, o *Options) { o.DPoP = mode })
		old := as.token(t, nil)
		clock.add(2 * time.Hour)
		for _, authorization := range []string{"", "Bearer " + old, "Bearer hush"} {
			h := http.Header{}
			_, no := p.Authenticate(h, request(http.MethodPost, "/mcp", authorization))
			if no == nil || no.Status != 401 || !strings.Contains(no.Reason, "Authorization: "+scheme) || strings.Contains(no.Reason, "hush") || strings.Contains(no.Reason, old) {
				t.Errorf("%q: %v; want Authorization: %s", authorization, no, scheme)
			}
			if d := demand(t, h); d.ErrorCode != "" && d.ErrorDescription != no.Reason {
				t.Errorf("%q: the challenge says %q, the reply %q", authorization, d.ErrorDescription, no.Reason)
			}
		}
	}
}

// TestDPoPAfterStart: without Options.RequiresNonces, a proof that a process before this one may have taken needs a nonce, and one
// that was made more than 30 seconds after the start does not.
func TestDPoPAfterStart(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, func(_ *provider, o *Options) { o.DPoP = DPoPRequire })
	prover, err := auth.NewProver(authtest.NewKey(t), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	token := as.token(t, map[string]any{"cnf": map[string]any{"jkt": prover.Thumbprint()}})
	for _, c := range []struct {
		pause time.Duration
		code  int
	}{{0, 401}, {30 * time.Second, 401}, {time.Second, 200}} {
		clock.add(c.pause)
		proof, err := prover.Proof(http.MethodPost, audience, token) // without a nonce: none was learned
		if err != nil {
			t.Fatal(err)
		}
		r := request(http.MethodPost, "/mcp", "DPoP "+token)
		r.Header.Set("DPoP", proof)
		code, h := status(p, r)
		if code != c.code || code == 401 && demand(t, h).ErrorCode != "use_dpop_nonce" {
			t.Errorf("%v after the start: %d %v, want %d", clock.now().Sub(start), code, h, c.code)
		}
	}
}

func demand(t *testing.T, h http.Header) auth.Demand {
	t.Helper()
	challenges, err := auth.ParseChallenges(h.Values("WWW-Authenticate"))
	if err != nil {
		t.Fatal(err)
	}
	return auth.DemandOf(challenges)
}

// TestCertificates shows certificates as credentials, and as what tokens are bound to.
func TestCertificates(t *testing.T) {
	t.Parallel()
	uri := func(s string) *url.URL { u, _ := url.Parse(s); return u }
	p, as, _ := setup(t, func(_ *provider, o *Options) { o.AcceptsCertificates = true })
	for name, c := range map[string]*x509.Certificate{
		"cert:uri=spiffe://td.example/ns/a": {URIs: []*url.URL{uri("spiffe://td.example/ns/a")}},
		"cert:dns=d":                        {DNSNames: []string{"d"}},
		"cert:cn=x":                         {DNSNames: []string{"d"}, Subject: pkix.Name{CommonName: "x"}},
	} {
		c.Raw = []byte(name)
		r := request(http.MethodGet, "/mcp", "")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		if code, _ := status(p, r); code != 401 {
			t.Errorf("%s: %d without having been verified", name, code)
		}
		r.TLS.VerifiedChains = [][]*x509.Certificate{{c}}
		if got := access.Principal(let(t, p, r)); got != name {
			t.Errorf("principal %q, want %q", got, name)
		}
		sum := sha256.Sum256(c.Raw)
		token := as.token(t, map[string]any{"cnf": map[string]any{"x5t#S256": base64.RawURLEncoding.EncodeToString(sum[:])}})
		r.Header.Set("Authorization", "Bearer "+token)
		if got := access.Principal(let(t, p, r)); !strings.HasPrefix(got, "oauth:") {
			t.Errorf("principal %q of a bound token", got)
		}
		r.TLS.PeerCertificates = []*x509.Certificate{{Raw: []byte("other")}}
		if code, _ := status(p, r); code != 401 {
			t.Errorf("bound to another certificate: %d", code)
		}
	}
}

// TestStreamsEnd shows when the context of a token is done.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := tokenExpiries{now: time.Now}
		for _, life := range []time.Duration{time.Second, 7*time.Minute + 3*time.Second, time.Hour} {
			begin := time.Now()
			ctx := e.contextUntil(begin.Add(life))
			if other := e.contextUntil(begin.Add(life)); other != ctx {
				t.Error("two contexts for one end")
			}
			<-ctx.Done()
			if late := time.Since(begin.Add(life)); late < maxClockSkew || late > time.Minute || !errors.Is(context.Cause(ctx), access.ErrExpired) {
				t.Errorf("done %v after the end, %v", late, context.Cause(ctx))
			}
		}
		if ctx := e.contextUntil(time.Now().Add(-time.Hour)); ctx.Err() == nil {
			t.Error("a token that has expired is not done")
		}
		begin := time.Now()
		<-e.contextUntil(time.Time{}).Done()
		if d := time.Since(begin); d > assumedLifetime+time.Minute {
			t.Errorf("an unknown end came after %v", d)
		}
		<-e.contextUntil(begin.Add(1e6 * time.Hour)).Done()
		if len(e.bySecond) != 0 {
			t.Errorf("%d ends are left", len(e.bySecond))
		}
		ctx := e.contextUntil(time.Now().Add(time.Minute))
		e.close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("done after close")
		}
	})
}

// TestKeyRemoved shows that connections of a key end with it.
func TestKeyRemoved(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ci old-key-0123456789\nci new-key-0123456789\n")
	keys, err := access.LoadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := setup(t, func(_ *provider, o *Options) { o.Issuers, o.StaticKeys = nil, keys })
	r := let(t, p, post("old-key-0123456789"))
	write("ci new-key-0123456789\n")
	if err := keys.Reload(); err != nil {
		t.Fatal(err)
	}
	<-access.TokenContext(r).Done()
	if access.PrincipalContext(r).Err() != nil {
		t.Error("the session ends although its principal has a key")
	}
	want(t, p, "Bearer old-key-0123456789", 401)
	if _, h := status(p, request(http.MethodGet, "/mcp", "")); h.Get("WWW-Authenticate") != `Bearer scope="mcp"` {
		t.Errorf("headers %v", h)
	}
}

// TestMetadata shows which documents there are, and that none is made from the Host of a request.
func TestMetadata(t *testing.T) {
	t.Parallel()
	p, as, _ := setup(t, nil)
	two, second, _ := setup(t, func(_ *provider, o *Options) {
		o.PublicURL = "https://h.example/base"
		o.Resources = []Resource{{Paths: []string{"/a/mcp"}}, {Paths: []string{"/b/mcp"}}}
	})
	keys, _, _ := setup(t, func(_ *provider, o *Options) { o.Issuers, o.StaticKeys = nil, parseTokens(t, "a 0123456789abcdefg") })
	for _, test := range []struct {
		p                  *Protector
		method, path, want string
		code               int
	}{
		{p, "GET", "/mcp", audience, 200}, {p, "GET", "/sse", public + "/sse", 200}, {p, "GET", "", audience, 200},
		{p, "GET", "/mcp/", "", 404}, {p, "GET", "/other", "", 404}, {p, "POST", "/mcp", "", 405}, {p, "OPTIONS", "/mcp", "", 204}, {p, "HEAD", "/mcp", audience, 200},
		{two, "GET", "/base/a/mcp", "https://h.example/base/a/mcp", 200}, {two, "GET", "/b/mcp", "https://h.example/base/b/mcp", 200}, {two, "GET", "", "", 404},
		{keys, "GET", "/mcp", "", 404},
	} {
		r := httptest.NewRequest(test.method, metadataPathPrefix+test.path, nil)
		r.Host = "evil.example"
		w := httptest.NewRecorder()
		test.p.MetadataHandler().ServeHTTP(w, r)
		if w.Code != test.code || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s %s: %d", test.method, test.path, w.Code)
		}
		if test.want == "" {
			continue
		}
		m, err := auth.ParseResourceMetadata(w.Body.Bytes(), test.want)
		if err != nil || m.Resource != test.want || len(m.AuthorizationServers) != 1 || auth.JoinScope(m.ScopesSupported) != "mcp" || len(m.DPoPAlgs) == 0 {
			t.Errorf("%s: %+v, %v", test.path, m, err)
		}
	}
	_, h := status(two, request(http.MethodGet, "/b/mcp", ""))
	if d := demand(t, h); d.ResourceMetadata != "https://h.example/.well-known/oauth-protected-resource/base/b/mcp" {
		t.Errorf("challenge %+v", d)
	}
	for path, code := range map[string]int{"/a/mcp": 200, "/base/a/mcp": 200, "/base/a/mcp/": 200, "/b/mcp": 401, "/base/b/mcp/": 401, "/base/base/a/mcp": 401} {
		token := second.token(t, map[string]any{"aud": "https://h.example/base/a/mcp"})
		if got, _ := status(two, request(http.MethodGet, path, "Bearer "+token)); got != code {
			t.Errorf("%s: %d, want %d", path, got, code)
		}
	}
	if code, _ := status(p, request(http.MethodGet, "/unknown", "Bearer "+as.token(t, nil))); code != 200 {
		t.Errorf("path without an endpoint: %d", code) // what is not there is answered by who knows the paths
	}
}

// TestResourcesChange: while resources are exchanged, a token is good for its own resource only, whichever of the old
// and new ones is asked for; and one that is left over by a change is good for no other path afterwards.
func TestResourcesChange(t *testing.T) {
	t.Parallel()
	a, b, c := Resource{Paths: []string{"/a/mcp"}}, Resource{Paths: []string{"/b/mcp"}}, Resource{Paths: []string{"/c/mcp"}}
	p, as, _ := setup(t, func(_ *provider, o *Options) { o.Resources = []Resource{a, b} })
	wants := func(when, token string, codes ...int) {
		t.Helper()
		for i, path := range []string{"/a/mcp", "/b/mcp", "/c/mcp", "/else"} {
			got, _ := status(p, request(http.MethodGet, path, "Bearer "+as.token(t, map[string]any{"aud": public + "/" + token + "/mcp"})))
			if got != codes[i] {
				t.Errorf("%s: a token for %s at %s: %d, want %d", when, token, path, got, codes[i])
			}
		}
	}
	change := func(resources ...Resource) func(bool) {
		t.Helper()
		finish, err := p.ChangeResources(resources)
		if err != nil {
			t.Fatal(err)
		}
		return finish
	}
	finish := change(a)
	wants("while b is removed", "a", 200, 401, 401, 401)
	wants("while b is removed", "b", 401, 200, 401, 401)
	finish(true)
	wants("without b", "a", 200, 401, 401, 401)
	wants("without b", "b", 401, 401, 401, 401)
	finish = change(c)
	wants("while c replaces a", "a", 200, 401, 401, 401)
	wants("while c replaces a", "c", 401, 401, 200, 401)
	finish(false)
	wants("after the change has failed", "a", 200, 401, 401, 401)
	wants("after the change has failed", "c", 401, 401, 401, 401)
	if _, err := p.ChangeResources([]Resource{{Paths: []string{"c"}}}); err == nil {
		t.Error("a path without a slash is accepted")
	}
	wants("after a mistake", "a", 200, 401, 401, 401)
	c.IsOnly = true
	finish = change(c)
	wants("while one comes that is alone", "c", 401, 401, 200, 401)
	finish(true)
	wants("alone", "c", 200, 200, 200, 200) // what is not there is answered by who knows the paths
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	secret := func() (string, error) { return "s", nil }
	for name, o := range map[string]Options{
		"nobody":           {},
		"no audience":      {Issuers: []Issuer{{URL: "https://a"}}},
		"empty audience":   {Issuers: []Issuer{{URL: "https://a", Audiences: []string{""}}}},
		"twice":            {PublicURL: public, Issuers: []Issuer{{URL: "https://a"}, {URL: "https://a"}}},
		"no name":          {PublicURL: public, Issuers: []Issuer{{}}},
		"no secret":        {PublicURL: public, Introspection: &Introspection{Endpoint: "https://a", ClientID: "b"}},
		"both ways":        {PublicURL: public, Issuers: []Issuer{{URL: "https://a"}}, Introspection: &Introspection{Endpoint: "https://a", Issuer: "https://a", ClientID: "b", ClientSecret: secret}},
		"slash":            {PublicURL: public + "/", AcceptsCertificates: true},
		"escapes":          {PublicURL: public + "/%61", AcceptsCertificates: true},
		"query":            {PublicURL: public + "?a", AcceptsCertificates: true},
		"no scheme":        {PublicURL: "mcp.example.com", AcceptsCertificates: true},
		"DPoP, no address": {DPoP: DPoPRequire, AcceptsCertificates: true},
		"scope":            {RequiredScopes: []string{"a b"}, AcceptsCertificates: true},
		"path":             {PublicURL: public, AcceptsCertificates: true, Resources: []Resource{{Paths: []string{"a"}}}},
		"no path":          {PublicURL: public, AcceptsCertificates: true, Resources: []Resource{{}}},
		"not alone":        {PublicURL: public, AcceptsCertificates: true, Resources: []Resource{{Paths: []string{"/a"}, IsOnly: true}, {Paths: []string{"/b"}}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkSeen is a request with a token that was verified before.
func BenchmarkSeen(b *testing.B) {
	p, as, _ := setup(b, nil)
	r, h := post(as.token(b, nil)), http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		if _, no := p.Authenticate(h, r); no != nil {
			b.Fatal(no)
		}
	}
}

// BenchmarkUnseen is a request with a token that was not. x-floor is its time in those of the floor, a bare ecdsa.Verify that
// is measured beside it; beyond-ns/op is what it takes more.
func BenchmarkUnseen(b *testing.B) {
	p, as, _ := setup(b, nil)
	token := as.token(b, nil)
	floor := verification(b, as.Key, token)
	r, h := post(token), http.Header{}
	var bare time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%10 == 0 { // beside it, as the clock of a processor changes
			b.StopTimer()
			began := time.Now()
			floor()
			bare += 10 * time.Since(began)
			b.StartTimer()
		}
		clear(p.verifiedTokens.byHash)
		if _, no := p.Authenticate(h, r); no != nil {
			b.Fatal(no)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(bare), "x-floor")
	b.ReportMetric(float64(b.Elapsed()-bare)/float64(b.N), "beyond-ns/op")
}

// verification returns a bare verification of a token's signature.
func verification(b *testing.B, key *ecdsa.PrivateKey, token string) func() {
	input, text, _ := strings.Cut(token, ".")
	claims, text, _ := strings.Cut(text, ".")
	sum := sha256.Sum256([]byte(input + "." + claims))
	sig, err := base64.RawURLEncoding.DecodeString(text)
	bridgetest.Must(b, err)
	r, s := new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])
	return func() {
		if !ecdsa.Verify(&key.PublicKey, sum[:], r, s) {
			b.Fatal("the signature is not valid")
		}
	}
}
