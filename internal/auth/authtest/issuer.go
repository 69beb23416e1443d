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

// IntrospectionClientSecret is the secret of the client "bridge", which may ask an Issuer about tokens.
const IntrospectionClientSecret = "introspection-s3cret-of-the-bridge"

// An Issuer is an authorization server with one key, for tests, which make its access tokens themselves. Its methods
// may be called concurrently.
type Issuer struct {
	URL    string            // its issuer identifier, and its address
	Key    *ecdsa.PrivateKey // signs the issuer's tokens; its key id is k1
	Client *http.Client      // for requests to it; nil if another server serves it

	// It answers everything with 502. This and the fields below are changed in Change only.
	IsUnavailable bool
	JWKS          any                       // its key set, which JSON encodes; nil: one with Key
	Introspection map[string]map[string]any // by token: what introspection answers; of all other tokens it answers that they are not active
	RequestCounts map[string]int            // how many requests the issuer got, by path

	t  testing.TB // fails when something goes wrong
	mu sync.Mutex // held while a request is served, and in Change
}

// NewIssuer starts an Issuer on a port of this machine, which ends with the test.
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

// IssuerAt returns an Issuer for a test that serves it at this URL itself.
func IssuerAt(t testing.TB, url string) *Issuer {
	t.Helper()
	recordSecrets(IntrospectionClientSecret)
	return &Issuer{t: t, URL: url, Key: NewKey(t), RequestCounts: map[string]int{}, Introspection: map[string]map[string]any{}}
}

// NewKey returns a new P-256 key, for ES256.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// JWK returns the public key of key as a JSON Web Key; kid is its id, "": it has none.
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

// base64URL returns text in base64url without padding.
func base64URL[T []byte | string](text T) string {
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// ServeHTTP implements http.Handler: metadata, /token (for the client "ci"), /jwks and /introspect.
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

// Change calls f, which may change the fields of the Issuer, while no request is served.
func (i *Issuer) Change(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// CountRequests returns how many requests the Issuer got for a path.
func (i *Issuer) CountRequests(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.RequestCounts[path]
}

// Claims returns the claims of a valid token for an audience, of the person sub, until end. change adds or replaces
// claims; a nil value takes one out.
func (i *Issuer) Claims(audience, sub string, end time.Time, change map[string]any) map[string]any {
	m := map[string]any{"iss": i.URL, "aud": audience, "sub": sub, "client_id": "c1", "scope": "mcp", "exp": end.Unix()}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// AccessTokenHeader is the JWT header of a valid access token of an Issuer.
const AccessTokenHeader = `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`

// Sign returns a JWT with this header, as it is, and these claims, signed with Key.
func (i *Issuer) Sign(header string, claims map[string]any) string {
	i.t.Helper()
	return SignText(i.t, i.Key, header, toJSON(i.t, claims))
}

// toJSON returns v as JSON, or fails the test.
func toJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// SignText returns a JWT with this header and payload, as they are, signed with key (ES256).
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

// signingInput returns the part of a JWT that is signed.
func signingInput(header, payload string) string { return base64URL(header) + "." + base64URL(payload) }

// ForgedTokens returns tokens with these claims that must all be refused, since a stranger could have made them, or
// changed them. The key says what is wrong with each.
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

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
