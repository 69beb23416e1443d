package resource

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// unread is a body that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

// A badCase is a request that must be refused.
type badCase struct {
	name   string
	kind   denialReason
	change func(*http.Request)
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func badCases(t *testing.T, as *provider) []badCase {
	const header = `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`
	b64 := base64.RawURLEncoding.EncodeToString
	good := toJSON(t, as.claims(nil))
	claims := func(change map[string]any) func(*http.Request) { return bearer(as.token(t, change)) }
	other := authtest.NewKey(t)
	point, _ := as.Key.PublicKey.Bytes()
	input := b64([]byte(`{"alg":"HS256","kid":"k1"}`)) + "." + b64([]byte(good))
	mac := hmac.New(sha256.New, point)
	mac.Write([]byte(input))
	embedded := toJSON(t, map[string]any{"alg": "ES256", "kid": "k1", "jwk": authtest.JWK(other, "k1"), "jku": as.URL + "/other"})
	return []badCase{
		{"nothing", noCredential, func(*http.Request) {}},
		{"other scheme", noCredential, func(r *http.Request) { r.SetBasicAuth("a", "b") }},
		{"alg none", invalidToken, bearer(b64([]byte(`{"alg":"none"}`)) + "." + b64([]byte(good)) + ".")},
		{"alg none with a signature", invalidToken, bearer(authtest.SignText(t, as.Key, `{"alg":"none","kid":"k1"}`, good))},
		{"HS256 with the public key", invalidToken, bearer(input + "." + b64(mac.Sum(nil)))},
		{"embedded jwk and jku", invalidToken, bearer(authtest.SignText(t, other, embedded, good))},
		{"crit", invalidToken, bearer(authtest.SignText(t, as.Key, `{"alg":"ES256","kid":"k1","crit":["exp"],"exp":1}`, good))},
		{"claim twice", invalidToken, bearer(authtest.SignText(t, as.Key, header, strings.Replace(good, `"sub":`, `"sub":"eve","sub":`, 1)))},
		{"id token by typ", invalidToken, bearer(authtest.SignText(t, as.Key, `{"alg":"ES256","kid":"k1","typ":"id+jwt"}`, good))},
		{"id token", invalidToken, claims(map[string]any{"at_hash": "x"})},
		{"neighbour's audience", invalidToken, claims(map[string]any{"aud": public + "/other"})},
		{"slash at the end", invalidToken, claims(map[string]any{"aud": audience + "/"})},
		{"upper case", invalidToken, claims(map[string]any{"aud": strings.ToUpper(audience)})},
		{"no audience", invalidToken, claims(map[string]any{"aud": nil})},
		{"other issuer", invalidToken, claims(map[string]any{"iss": "https://other.example"})},
		{"issuer with a slash", invalidToken, claims(map[string]any{"iss": as.URL + "/"})},
		{"expired a second past the skew", invalidToken, claims(map[string]any{"exp": start.Add(-31 * time.Second).Unix()})},
		{"no end", invalidToken, claims(map[string]any{"exp": nil})},
		{"not yet", invalidToken, claims(map[string]any{"nbf": start.Add(31 * time.Second).Unix()})},
		{"nobody", invalidToken, claims(map[string]any{"sub": nil, "client_id": nil})},
		{"other key", invalidToken, bearer(authtest.SignText(t, other, header, good))},
		{"unknown key", invalidToken, bearer(authtest.SignText(t, other, `{"alg":"ES256","kid":"k2"}`, good))},
		{"no signature", invalidToken, bearer(b64([]byte(header)) + "." + b64([]byte(good)) + ".")},
		{"opaque", invalidToken, bearer("abcdefghijklmnop")},
		{"no token", invalidToken, func(r *http.Request) { r.Header.Set("Authorization", "Bearer") }},
		{"20 KB", invalidToken, bearer(strings.Repeat("a", 20<<10))},
		{"not ASCII", invalidToken, bearer("tö.k.n")},
		{"in the query", invalidToken, func(r *http.Request) { r.URL.RawQuery = "access_token=" + as.token(t, nil) }},
		{"in the query too", invalidToken, func(r *http.Request) {
			bearer(as.token(t, nil))(r)
			r.URL.RawQuery = "a=b&access%5ftoken="
		}},
		{"api_key in the query", invalidToken, func(r *http.Request) { r.URL.RawQuery = "API_KEY=" + as.token(t, nil) }},
		{"two headers", malformed, func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer " + as.token(t, nil), "Bearer " + as.token(t, nil)}
		}},
		{"unknown binding", invalidToken, claims(map[string]any{"cnf": map[string]any{"kid": "x"}})},
		{"bound to a key, plain", wrongBinding, claims(map[string]any{"cnf": map[string]any{"jkt": "x"}})},
		{"bound to a certificate, plain", wrongBinding, claims(map[string]any{"cnf": map[string]any{"x5t#S256": "x"}})},
		{"unbound with DPoP", invalidToken, func(r *http.Request) { r.Header.Set("Authorization", "DPoP "+as.token(t, nil)) }},
		{"bound to a key, without a proof", invalidProof, func(r *http.Request) {
			r.Header.Set("Authorization", "DPoP "+as.token(t, map[string]any{"cnf": map[string]any{"jkt": "x"}}))
		}},
		{"lacking scope", insufficientScope, claims(map[string]any{"scope": "read"})},
	}
}

func upgrade(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	return r
}

// TestBadInput sends every bad credential with every kind of request: the status is right, the
// challenge complete, and all headers are the same for the same reason, whatever is in the token.
func TestBadInput(t *testing.T) {
	t.Parallel()
	p, as, _ := setup(t, nil)
	inside := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a bad request was let through") })
	alone := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known, no := p.Authenticate(w.Header(), r)
		if no != nil {
			http.Error(w, no.Reason, no.Status)
			return
		}
		inside(w, known)
	})
	guard := &access.Policy{Authenticator: p}
	byPolicy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, no := guard.Enter(w, r); no != nil {
			http.Error(w, no.Reason, no.Status)
			return
		}
		inside(w, r)
	})
	codes := [reasonCount]int{noCredential: 401, invalidToken: 401, wrongBinding: 401, invalidProof: 401, malformed: 400, insufficientScope: 403}
	seen := map[string]http.Header{}
	for _, c := range badCases(t, as) {
		for what, r := range map[string]*http.Request{
			"GET":     httptest.NewRequest(http.MethodGet, "/mcp", nil),
			"POST":    httptest.NewRequest(http.MethodPost, "/mcp", unread{t}),
			"DELETE":  httptest.NewRequest(http.MethodDelete, "/mcp", nil),
			"upgrade": upgrade("/mcp"),
			"SSE":     httptest.NewRequest(http.MethodGet, "/sse", nil),
		} {
			c.change(r)
			r.Host = "evil.example"
			for i, h := range []http.Handler{alone, byPolicy} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != codes[c.kind] {
					t.Errorf("%s, %s: status %d, want %d", c.name, what, w.Code, codes[c.kind])
				}
				checkChallenge(t, c, r, w.Header())
				key := fmt.Sprint(c.kind, r.URL.Path, i, w.Header().Get("WWW-Authenticate")[:4])
				if seen[key] == nil {
					seen[key] = w.Header()
				} else if !reflect.DeepEqual(seen[key], w.Header()) {
					t.Errorf("%s, %s: headers %v, and another time %v", c.name, what, w.Header(), seen[key])
				}
			}
		}
	}
}

func checkChallenge(t *testing.T, c badCase, r *http.Request, h http.Header) {
	t.Helper()
	challenges, err := auth.ParseChallenges(h.Values("WWW-Authenticate"))
	if err != nil || len(challenges) != 1 {
		t.Fatalf("%s: challenges %v, %v", c.name, challenges, err)
	}
	scheme := auth.SchemeBearer
	if usesDPoPScheme(r) || c.name == "bound to a key, plain" {
		scheme = auth.SchemeDPoP
	}
	if challenges[0].Scheme != scheme {
		t.Errorf("%s: scheme %s", c.name, challenges[0].Scheme)
	}
	d := auth.DemandOf(challenges)
	if d.ErrorCode != oauthErrorCodes[c.kind] || (d.ErrorCode == "") != (d.ErrorDescription == "") {
		t.Errorf("%s: error %q, %q", c.name, d.ErrorCode, d.ErrorDescription)
	}
	if d.ResourceMetadata != public+metadataPathPrefix+r.URL.Path || auth.JoinScope(d.Scopes) != "mcp" {
		t.Errorf("%s: challenge %v", c.name, d)
	}
}

// TestRandomKeyIDs shows that strangers cannot make us ask the provider.
func TestRandomKeyIDs(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, nil)
	want(t, p, "Bearer "+as.token(t, nil), 200)
	payload := base64.RawURLEncoding.EncodeToString([]byte(toJSON(t, as.claims(nil))))
	many := func(from int) {
		for i := range 10_000 {
			header := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"ES256","kid":"r%d"}`, from+i))
			want(t, p, "Bearer "+header+"."+payload+"."+strings.Repeat("A", 86), 401)
		}
	}
	many(0)
	if n := as.CountRequests("/jwks"); n != 1 {
		t.Errorf("%d fetches at first", n)
	}
	clock.add(31 * time.Second)
	many(10_000)
	if n := as.CountRequests("/jwks"); n != 2 {
		t.Errorf("%d fetches, 30 seconds later", n)
	}
}

// TestProviderStopped shows that what is known goes on, and that nothing is said to be invalid which
// nobody can check.
func TestProviderStopped(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, nil)
	long := map[string]any{"exp": start.Add(48 * time.Hour).Unix()}
	seen := as.token(t, long)
	as.Change(func() { as.IsUnavailable = true })
	r := request(http.MethodPost, "/mcp", "Bearer "+seen)
	if code, h := status(p, r); code != 503 || h.Get("Retry-After") == "" || h.Get("WWW-Authenticate") != "" {
		t.Errorf("without keys: %d %v", code, h)
	}
	as.Change(func() { as.IsUnavailable = false })
	clock.add(6 * time.Second)
	want(t, p, "Bearer "+seen, 200)
	as.Change(func() { as.IsUnavailable = true })
	for range 20 {
		clock.add(time.Hour)
		want(t, p, "Bearer "+seen, 200)
		want(t, p, "Bearer "+as.token(t, map[string]any{"exp": start.Add(48 * time.Hour).Unix(), "sub": "bob"}), 200)
		want(t, p, "Bearer "+authtest.SignText(t, as.Key, `{"alg":"ES256","kid":"new"}`, toJSON(t, as.claims(long))), 503)
	}
}

// TestKeyWithdrawn shows that a token that was seen is not valid longer than its key.
func TestKeyWithdrawn(t *testing.T) {
	t.Parallel()
	p, as, clock := setup(t, nil)
	token := as.token(t, nil)
	want(t, p, "Bearer "+token, 200)
	as.Change(func() { as.JWKS = map[string]any{"keys": []any{authtest.JWK(authtest.NewKey(t), "k2")}} })
	clock.add(16 * time.Minute)
	want(t, p, "Bearer "+token, 401)
}
