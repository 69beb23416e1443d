package tests

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

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// publicURL is what the clients of a protected bridge are told to call it.
const publicURL = "https://mcp.example.com"

// An issuer is an identity provider with one key, whose access tokens the test makes.
type issuer struct {
	t   testing.TB
	url string
	key *ecdsa.PrivateKey

	mu     sync.Mutex
	down   bool
	opaque map[string]map[string]any // what introspection says of tokens
	asked  map[string]int            // requests by path
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := issuerAt(t, "")
	s := httptest.NewServer(i)
	i.url = s.URL
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return i
}

// issuerAt returns one that somebody else serves at this URL.
func issuerAt(t testing.TB, url string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	return &issuer{t: t, url: url, key: key, asked: map[string]int{}, opaque: map[string]map[string]any{}}
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[r.URL.Path]++
	if i.down {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	var answer any
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server":
		answer = map[string]any{"issuer": i.url, "jwks_uri": i.url + "/jwks"}
	case "/jwks":
		point, _ := i.key.PublicKey.Bytes()
		b64 := base64.RawURLEncoding.EncodeToString
		answer = map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "kid": "k1", "x": b64(point[1:33]), "y": b64(point[33:])}}}
	case "/introspect":
		if id, secret, _ := r.BasicAuth(); id != "bridge" || secret != introspectSecret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if answer = i.opaque[r.FormValue("token")]; answer.(map[string]any) == nil {
			answer = map[string]any{"active": false}
		}
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// introspectSecret is the bridge's at the issuer.
const introspectSecret = "introspection-s3cret-of-the-bridge"

// set changes the issuer.
func (i *issuer) set(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
}

// count returns how often a path was asked for.
func (i *issuer) count(path string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked[path]
}

// claims returns those of a valid token of a person, with these changes. A nil value takes one out.
func (i *issuer) claims(sub string, change map[string]any) map[string]any {
	m := map[string]any{
		"iss": i.url, "aud": publicURL + "/mcp", "sub": sub, "client_id": "c1", "scope": "mcp", "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

// token signs such claims.
func (i *issuer) token(sub string, change map[string]any) string {
	i.t.Helper()
	return i.sign(`{"alg":"ES256","kid":"k1","typ":"at+jwt"}`, i.claims(sub, change))
}

// sign signs a header, as it is, and claims.
func (i *issuer) sign(header string, claims map[string]any) string {
	i.t.Helper()
	payload, err := json.Marshal(claims)
	bridgetest.Must(i.t, err)
	return i.signText(i.key, header, string(payload))
}

// signText signs a header and a payload, as they are.
func (i *issuer) signText(key *ecdsa.PrivateKey, header, payload string) string {
	i.t.Helper()
	input := unsigned(header, payload)
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	bridgetest.Must(i.t, err)
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// unsigned is what a signature is made for.
func unsigned(header, payload string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
}

// forged returns tokens with valid claims that a stranger could have made, or made more of, by what is wrong
// with them.
func (i *issuer) forged(claims map[string]any) map[string]string {
	i.t.Helper()
	text, err := json.Marshal(claims)
	bridgetest.Must(i.t, err)
	payload := string(text)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(i.t, err)
	point, err := other.PublicKey.Bytes()
	bridgetest.Must(i.t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	jwk := fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":"k1","x":%q,"y":%q}`, b64(point[1:33]), b64(point[33:]))
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	bridgetest.Must(i.t, err)
	ours, err := i.key.PublicKey.Bytes()
	bridgetest.Must(i.t, err)
	all := map[string]string{
		"alg none":      unsigned(`{"alg":"none"}`, payload) + ".",
		"embedded jwk":  i.signText(other, `{"alg":"ES256","kid":"k1","typ":"at+jwt","jwk":`+jwk+`}`, payload),
		"embedded jku":  i.signText(other, fmt.Sprintf(`{"alg":"ES256","kid":"k1","typ":"at+jwt","jku":%q}`, i.url+"/forged"), payload),
		"embedded x5u":  i.signText(other, fmt.Sprintf(`{"alg":"ES256","kid":"k1","typ":"at+jwt","x5u":%q}`, i.url+"/forged"), payload),
		"unknown crit":  i.signText(i.key, `{"alg":"ES256","kid":"k1","typ":"at+jwt","crit":["x"],"x":1}`, payload),
		"claim twice":   i.signText(i.key, `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`, strings.Replace(payload, `"sub":`, `"sub":"eve","sub":`, 1)),
		"another key":   i.signText(other, `{"alg":"ES256","kid":"k1","typ":"at+jwt"}`, payload),
		"header twice":  i.signText(i.key, `{"alg":"none","alg":"ES256","kid":"k1","typ":"at+jwt"}`, payload),
		"key id of any": i.signText(other, `{"alg":"ES256","typ":"at+jwt"}`, payload),
	}
	for what, key := range map[string][]byte{
		"PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "DER": der, "point": ours,
	} {
		input := unsigned(`{"alg":"HS256","kid":"k1","typ":"at+jwt"}`, payload)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(input))
		all["HS256 with the public key as "+what] = input + "." + b64(mac.Sum(nil))
	}
	return all
}
