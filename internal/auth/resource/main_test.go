package resource

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

const (
	public   = "https://mcp.example.com"
	audience = public + "/mcp"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type testClock struct{ offset atomic.Int64 }

func (c *testClock) now() time.Time      { return start.Add(time.Duration(c.offset.Load())) }
func (c *testClock) add(d time.Duration) { c.offset.Add(int64(d)) }

// A provider is an authorization server with one key, whose answers a test can change.
type provider struct {
	url  string
	key  *ecdsa.PrivateKey
	http *http.Client

	mu     sync.Mutex
	tokens map[string]map[string]any // what introspection says
	jwks   any                       // nil: the key
	down   bool
	asked  map[string]int // requests by path
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{key: newKey(t), tokens: map[string]map[string]any{}, asked: map[string]int{}}
	s := httptest.NewServer(p)
	p.url, p.http = s.URL, s.Client()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// jwk returns a public key as JSON has it.
func jwk(t testing.TB, key *ecdsa.PrivateKey, kid string) map[string]any {
	t.Helper()
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	m := map[string]any{"kty": "EC", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])}
	if kid != "" {
		m["kid"] = kid
	}
	return m
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.URL.Path]++
	if p.down {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		answer = map[string]any{"issuer": p.url, "jwks_uri": p.url + "/jwks"}
	case "/jwks":
		if answer = p.jwks; answer == nil {
			point, _ := p.key.PublicKey.Bytes()
			b64 := base64.RawURLEncoding.EncodeToString
			answer = map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "k1", "x": b64(point[1:33]), "y": b64(point[33:])}}}
		}
	case "/introspect":
		if id, secret, _ := r.BasicAuth(); id != "bridge" || secret != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			answer = map[string]any{"error": "invalid_client"}
			break
		}
		if answer = p.tokens[r.FormValue("token")]; answer.(map[string]any) == nil {
			answer = map[string]any{"active": false}
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *provider) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *provider) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[path]
}

// claims returns those of a valid token, with these changes. A nil value takes one out.
func (p *provider) claims(change map[string]any) map[string]any {
	m := map[string]any{"iss": p.url, "aud": audience, "sub": "ann", "client_id": "c1", "scope": "mcp read", "exp": start.Add(time.Hour).Unix()}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// token signs claims with these changes.
func (p *provider) token(t testing.TB, change map[string]any) string {
	t.Helper()
	return signText(t, p.key, `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`, toJSON(t, p.claims(change)))
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// signText signs a header and a payload as they are.
func signText(t testing.TB, key *ecdsa.PrivateKey, header, payload string) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	input := b64([]byte(header)) + "." + b64([]byte(payload))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return input + "." + b64(sig)
}

// setup returns a Protector for the tokens of a provider, with these changes of its Options.
func setup(t testing.TB, change func(*provider, *Options)) (*Protector, *provider, *testClock) {
	t.Helper()
	as, clock := newProvider(t), new(testClock)
	o := Options{
		Issuers: []Issuer{{URL: as.url}}, PublicURL: public, Resources: []Resource{{Paths: []string{"/mcp", "/sse"}, Alone: true}},
		Scopes: []string{"mcp"}, Now: clock.now, Caller: &auth.Caller{HTTP: as.http},
	}
	if change != nil {
		change(as, &o)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, as, clock
}

// request makes a request with this Authorization, "": none.
func request(method, path, authorization string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

// status returns what Authenticate answers: 200 for what it lets through.
func status(p *Protector, r *http.Request) (int, http.Header) {
	h := http.Header{}
	if _, no := p.Authenticate(h, r); no != nil {
		return no.Status, h
	}
	return http.StatusOK, h
}

// want fails the test unless a POST with this Authorization is answered with a status.
func want(t *testing.T, p *Protector, authorization string, code int) {
	t.Helper()
	if got, _ := status(p, request(http.MethodPost, "/mcp", authorization)); got != code {
		t.Errorf("status %d, want %d", got, code)
	}
}

func parseTokens(t testing.TB, text string) *access.Tokens {
	t.Helper()
	tokens, err := access.ParseTokens(text)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}
