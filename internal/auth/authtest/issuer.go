package authtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// IntrospectionClientSecret is that of the client "bridge", which may ask an Issuer about tokens.
const IntrospectionClientSecret = "introspection-s3cret-of-the-bridge"

// An Issuer is an authorization server with one key, whose access tokens the test makes. Its methods may be called
// concurrently.
type Issuer struct {
	URL    string
	Key    *ecdsa.PrivateKey // with the id k1
	Client *http.Client      // for requests to it; nil if somebody else serves it

	// These are changed in Change.
	IsUnavailable bool                      // answers nothing but 502
	JWKS          any                       // its keys; nil: Key
	Introspection map[string]map[string]any // what introspection says of tokens
	RequestCounts map[string]int            // requests by path

	t  testing.TB
	mu sync.Mutex
}

// NewIssuer starts an Issuer, which ends with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	i := IssuerAt(t, "http://"+s.Listener.Addr().String()) // whole before it serves: another test may ask who had this port before
	s.Config.Handler = i
	s.Start()
	i.Client = s.Client()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return i
}

// IssuerAt returns an Issuer that somebody else serves at this URL.
func IssuerAt(t testing.TB, url string) *Issuer {
	t.Helper()
	recordSecrets(IntrospectionClientSecret)
	return &Issuer{t: t, URL: url, Key: NewKey(t), RequestCounts: map[string]int{}, Introspection: map[string]map[string]any{}}
}

// NewKey returns a key for ES256.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// JWK returns a public key as JSON has it; kid "": it has no name.
func JWK(key *ecdsa.PrivateKey, kid string) map[string]any {
	point, err := key.PublicKey.Bytes()
	if err != nil {
		panic(err)
	}
	m := map[string]any{"kty": "EC", "crv": "P-256", "x": base64URL(point[1:33]), "y": base64URL(point[33:])}
	if kid != "" {
		m["kid"] = kid
	}
	return m
}

func base64URL[T []byte | string](text T) string {
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.RequestCounts[r.URL.Path]++
	if i.IsUnavailable {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		replyJSON(w, 200, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/jwks", "token_endpoint": i.URL + "/token"})
	case "/token": // for the client "ci", whatever its secret is
		id, secret, _ := r.BasicAuth()
		recordSecrets(secret)
		if id != "ci" || r.FormValue("grant_type") != "client_credentials" {
			replyJSON(w, 401, map[string]any{"error": "invalid_client"})
			return
		}
		claims := i.Claims(r.FormValue("resource"), id, time.Now().Add(time.Hour), map[string]any{"client_id": id, "scope": r.FormValue("scope")})
		replyJSON(w, 200, map[string]any{"access_token": i.Sign(AccessTokenHeader, claims), "token_type": "Bearer", "expires_in": 3600})
	case "/jwks":
		keys := i.JWKS
		if keys == nil {
			keys = map[string]any{"keys": []any{JWK(i.Key, "k1")}}
		}
		replyJSON(w, 200, keys)
	case "/introspect":
		token := recordSecrets(r.FormValue("token"))
		if id, given, _ := r.BasicAuth(); id != "bridge" || given != IntrospectionClientSecret {
			replyJSON(w, 401, map[string]any{"error": "invalid_client"})
			return
		}
		answer := i.Introspection[token]
		if answer == nil {
			answer = map[string]any{"active": false}
		}
		replyJSON(w, 200, answer)
	default:
		http.NotFound(w, r)
	}
}

// Change changes the Issuer.
func (i *Issuer) Change(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// CountRequests returns how often a path was asked for.
func (i *Issuer) CountRequests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.RequestCounts[path]
}

// Claims returns those of a valid token of a person for an audience, until a time, with these changes. A nil value takes
// one out.
func (i *Issuer) Claims(audience, sub string, end time.Time, change map[string]any) map[string]any {
	m := map[string]any{"iss": i.URL, "aud": audience, "sub": sub, "client_id": "c1", "scope": "mcp", "exp": end.Unix()}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// AccessTokenHeader is that of a valid access token.
const AccessTokenHeader = `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`

// Sign signs a header, as it is, and claims.
func (i *Issuer) Sign(header string, claims map[string]any) string {
	i.t.Helper()
	return SignText(i.t, i.Key, header, toJSON(i.t, claims))
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// SignText signs a header and a payload, as they are.
func SignText(t testing.TB, key *ecdsa.PrivateKey, header, payload string) string {
	t.Helper()
	input := signingInput(header, payload)
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	must(t, err)
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return recordSecrets(input + "." + base64URL(sig))
}

// signingInput is what a signature is made for.
func signingInput(header, payload string) string { return base64URL(header) + "." + base64URL(payload) }

// ForgedTokens returns tokens with valid claims that a stranger could have made, or made more of, by what is wrong
// with them.
func (i *Issuer) ForgedTokens(claims map[string]any) map[string]string {
	i.t.Helper()
	payload := toJSON(i.t, claims)
	other := NewKey(i.t)
	jwk := toJSON(i.t, JWK(other, "k1"))
	der, err := x509.MarshalPKIXPublicKey(&i.Key.PublicKey)
	must(i.t, err)
	ours, err := i.Key.PublicKey.Bytes()
	must(i.t, err)
	sign := func(key *ecdsa.PrivateKey, header, payload string) string { return SignText(i.t, key, header, payload) }
	all := map[string]string{
		"alg none":      signingInput(`{"alg":"none"}`, payload) + ".",
		"embedded jwk":  sign(other, `{"alg":"ES256","kid":"k1","typ":"at+jwt","jwk":`+jwk+`}`, payload),
		"embedded jku":  sign(other, fmt.Sprintf(`{"alg":"ES256","kid":"k1","typ":"at+jwt","jku":%q}`, i.URL+"/forged"), payload),
		"embedded x5u":  sign(other, fmt.Sprintf(`{"alg":"ES256","kid":"k1","typ":"at+jwt","x5u":%q}`, i.URL+"/forged"), payload),
		"unknown crit":  sign(i.Key, `{"alg":"ES256","kid":"k1","typ":"at+jwt","crit":["x"],"x":1}`, payload),
		"claim twice":   sign(i.Key, AccessTokenHeader, strings.Replace(payload, `"sub":`, `"sub":"eve","sub":`, 1)),
		"another key":   sign(other, AccessTokenHeader, payload),
		"header twice":  sign(i.Key, `{"alg":"none","alg":"ES256","kid":"k1","typ":"at+jwt"}`, payload),
		"key id of any": sign(other, `{"alg":"ES256","typ":"at+jwt"}`, payload),
	}
	for what, key := range map[string][]byte{
		"PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "DER": der, "point": ours,
	} {
		input := signingInput(`{"alg":"HS256","kid":"k1","typ":"at+jwt"}`, payload)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(input))
		all["HS256 with the public key as "+what] = input + "." + base64URL(mac.Sum(nil))
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
