package resource

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
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

// A provider is an authorization server, whose tokens for the audience a test makes.
type provider struct{ *authtest.Issuer }

func newProvider(t testing.TB) *provider { return &provider{authtest.NewIssuer(t)} }

// claims returns those of a valid token, with these changes. A nil value takes one out.
func (p *provider) claims(change map[string]any) map[string]any {
	all := map[string]any{"scope": "mcp read"}
	maps.Copy(all, change)
	return p.Claims(audience, "ann", start.Add(time.Hour), all)
}

// token signs claims with these changes.
func (p *provider) token(t testing.TB, change map[string]any) string {
	t.Helper()
	return p.Sign(authtest.AccessTokenHeader, p.claims(change))
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setup returns a Protector for the tokens of a provider, with these changes of its Options.
func setup(t testing.TB, change func(*provider, *Options)) (*Protector, *provider, *testClock) {
	t.Helper()
	as, clock := newProvider(t), new(testClock)
	o := Options{
		Issuers: []Issuer{{URL: as.URL}}, PublicURL: public, Resources: []Resource{{Paths: []string{"/mcp", "/sse"}, IsOnly: true}},
		RequiredScopes: []string{"mcp"}, Now: clock.now, Caller: &auth.EndpointCaller{HTTP: as.Client},
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
