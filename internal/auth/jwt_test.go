package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

const (
	testIssuer   = "https://as.example"
	testAudience = "https://h/mcp"
)

// good returns claims that are valid, with these changes. A nil value takes a claim out.
func good(change map[string]any) map[string]any {
	m := map[string]any{"iss": testIssuer, "aud": testAudience, "sub": "ann", "client_id": "c", "scope": "a b", "exp": start.Add(time.Hour).Unix(), "iat": start.Unix(), "jti": "j1"}
	maps.Copy(m, change)
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// signES256 signs parts of a token that no library would write.
func signES256(t *testing.T, key *ecdsa.PrivateKey, header, payload string) string {
	t.Helper()
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// issue signs claims with a header.
func issue(t *testing.T, key any, alg jose.SignatureAlgorithm, header map[jose.HeaderKey]any, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	text, err := signClaims(s, claims)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// newVerifier returns a JWTVerifier whose provider has these keys.
func newVerifier(t *testing.T, keys ...jose.JSONWebKey) *JWTVerifier {
	t.Helper()
	s, _, clock := newSet(t, keySet(t, keys...))
	return &JWTVerifier{Issuer: testIssuer, Audiences: []string{"other", testAudience}, Keys: s, Now: clock.now}
}

// verifyText has v verify the token that is this text.
func verifyText(ctx context.Context, v *JWTVerifier, text string) (Claims, error) {
	token, err := ReadJWT(text)
	if err != nil {
		return Claims{}, err
	}
	return v.Verify(ctx, token)
}

func TestVerifyGoodTokens(t *testing.T) {
	t.Parallel()
	ec, ec384, ec521 := newKey(t, elliptic.P256()), newKey(t, elliptic.P384()), newKey(t, elliptic.P521())
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, jose.JSONWebKey{Key: ec.Public(), KeyID: "k1"}, jose.JSONWebKey{Key: ec384.Public()}, jose.JSONWebKey{Key: ec521.Public()},
		jose.JSONWebKey{Key: rs.Public(), KeyID: "r"}, jose.JSONWebKey{Key: ed.Public()})
	for _, a := range signatureAlgorithms {
		key := map[string]crypto.Signer{"ES256": ec, "ES384": ec384, "ES512": ec521, "EdDSA": ed}[string(a)]
		if key == nil {
			key = rs
		}
		if c, err := verifyText(within(t), v, issue(t, key, a, nil, good(nil))); err != nil || c.Subject != "ann" {
			t.Errorf("%s: %+v, %v", a, c, err)
		}
	}
	want := Claims{Issuer: testIssuer, Subject: "ann", ClientID: "c", Audience: []string{testAudience}, Scopes: []string{"a", "b"}, Expires: time.Unix(start.Unix()+3600, 0)}
	header := map[jose.HeaderKey]any{"kid": "k1", "typ": "at+jwt"}
	for name, test := range map[string]struct {
		change map[string]any
		want   func(*Claims)
	}{
		"plain":            {nil, func(*Claims) {}},
		"audiences":        {map[string]any{"aud": []string{"x", testAudience}}, func(c *Claims) { c.Audience = []string{"x", testAudience} }},
		"scp":              {map[string]any{"scope": nil, "scp": []string{"x", "y z"}}, func(c *Claims) { c.Scopes = []string{"x", "y", "z"} }},
		"scp as a string":  {map[string]any{"scp": "b c"}, func(c *Claims) { c.Scopes = []string{"a", "b", "c"} }},
		"azp":              {map[string]any{"client_id": nil, "azp": "z"}, func(c *Claims) { c.ClientID = "z" }},
		"jkt":              {map[string]any{"cnf": map[string]any{"jkt": "x"}}, func(c *Claims) { c.JKT = "x" }},
		"x5t":              {map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}, func(c *Claims) { c.X5T = "x" }},
		"within the skew":  {map[string]any{"exp": start.Unix() - 29, "nbf": start.Unix() + 30}, func(c *Claims) { c.Expires, c.NotBefore = time.Unix(start.Unix()-29, 0), time.Unix(start.Unix()+30, 0) }},
		"fraction":         {map[string]any{"exp": float64(start.Unix()) + 0.5}, func(c *Claims) { c.Expires = time.Unix(start.Unix(), 5e8) }},
		"no scope":         {map[string]any{"scope": nil}, func(c *Claims) { c.Scopes = nil }},
		"client, no owner": {map[string]any{"sub": nil}, func(c *Claims) { c.Subject = "" }},
	} {
		got, err := verifyText(within(t), v, issue(t, ec, jose.ES256, header, good(test.change)))
		w := want
		test.want(&w)
		if got.KeyThumbprint == "" {
			t.Errorf("%s: no key", name)
		}
		got.KeyThumbprint = ""
		if err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, typ := range []any{"JWT", "jwt", "application/at+jwt", "AT+JWT"} {
		if _, err := verifyText(within(t), v, issue(t, ec, jose.ES256, map[jose.HeaderKey]any{"typ": typ}, good(nil))); err != nil {
			t.Errorf("typ %v: %v", typ, err)
		}
	}
	read, err := ReadJWT(issue(t, ec, jose.ES256, nil, good(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read.Issuer(); err != nil || got != testIssuer {
		t.Errorf("%q, %v", got, err)
	}
}

func TestVerifyBadTokens(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(rs.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	v := newVerifier(t, jose.JSONWebKey{Key: key.Public(), KeyID: "k1"}, jose.JSONWebKey{Key: rs.Public(), KeyID: "r1"})
	claims := func(change map[string]any) string {
		return issue(t, key, jose.ES256, map[jose.HeaderKey]any{"kid": "k1"}, good(change))
	}
	head := func(header map[jose.HeaderKey]any) string { return issue(t, key, jose.ES256, header, good(nil)) }
	raw := func(header, payload string) string { return signES256(t, key, header, payload) }
	text, _ := json.Marshal(good(nil))
	plain := string(text)
	hs := encode(t, map[string]any{"alg": "HS256", "kid": "r1"}) + "." + encode(t, good(nil))
	mac := hmac.New(sha256.New, public)
	mac.Write([]byte(hs))
	whole := claims(nil)
	parts := strings.Split(whole, ".")
	for name, token := range map[string]string{
		"none":                  encode(t, map[string]any{"alg": "none"}) + "." + encode(t, good(nil)) + ".",
		"None":                  encode(t, map[string]any{"alg": "None"}) + "." + parts[1] + "." + parts[2],
		"HS256 with the key":    hs + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
		"embedded jwk":          issue(t, stranger, jose.ES256, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: stranger.Public()}}, good(nil)),
		"jku":                   issue(t, stranger, jose.ES256, map[jose.HeaderKey]any{"jku": "https://evil/keys", "kid": "k1"}, good(nil)),
		"x5u":                   issue(t, stranger, jose.ES256, map[jose.HeaderKey]any{"x5u": "https://evil/x"}, good(nil)),
		"crit":                  raw(`{"alg":"ES256","kid":"k1","crit":["exp"],"exp":1}`, plain),
		"crit b64":              raw(`{"alg":"ES256","crit":["b64"],"b64":false}`, plain),
		"empty crit":            raw(`{"alg":"ES256","crit":[]}`, plain),
		"no alg":                raw(`{"kid":"k1"}`, plain),
		"alg twice":             raw(`{"alg":"none","alg":"ES256"}`, plain),
		"claim twice":           raw(`{"alg":"ES256"}`, strings.Replace(plain, `{`, `{"aud":"x",`, 1)),
		"inner claim twice":     raw(`{"alg":"ES256"}`, strings.Replace(plain, `{`, `{"act":{"sub":"a","sub":"b"},`, 1)),
		"claims are an array":   raw(`{"alg":"ES256"}`, `[]`),
		"id is a number":        claims(map[string]any{"jti": 1}),
		"time of issue as text": claims(map[string]any{"iat": "now"}),
		"kid is a number":       raw(`{"alg":"ES256","kid":1}`, plain),
		"other algorithm":       encode(t, map[string]any{"alg": "RS256", "kid": "k1"}) + "." + parts[1] + "." + parts[2],
		"unknown key":           head(map[jose.HeaderKey]any{"kid": "k2"}),
		"typ of an id":          head(map[jose.HeaderKey]any{"typ": "logout+jwt"}),
		"typ of a proof":        head(map[jose.HeaderKey]any{"typ": "dpop+jwt"}),
		"other key":             issue(t, stranger, jose.ES256, map[jose.HeaderKey]any{"kid": "k1"}, good(nil)),
		"changed":               parts[0] + "." + encode(t, good(map[string]any{"sub": "bob"})) + "." + parts[2],
		"signature cut":         whole[:len(whole)-4],
		"no signature":          parts[0] + "." + parts[1] + ".",
		"padding":               parts[0] + "." + parts[1] + "." + parts[2] + "==",
		"line feed":             parts[0][:4] + "\n" + parts[0][4:] + "." + parts[1] + "." + parts[2],
		"id token":              claims(map[string]any{"aud": "client-1"}),
		"id token for us":       claims(map[string]any{"at_hash": "x"}),
		"neighbour's audience":  claims(map[string]any{"aud": "https://h/other"}),
		"slash at its end":      claims(map[string]any{"aud": testAudience + "/"}),
		"upper case":            claims(map[string]any{"aud": "https://H/mcp"}),
		"parent":                claims(map[string]any{"aud": []string{"https://h", "https://h/"}}),
		"no audience":           claims(map[string]any{"aud": nil}),
		"audience is an object": claims(map[string]any{"aud": map[string]any{"x": testAudience}}),
		"other issuer":          claims(map[string]any{"iss": "https://evil"}),
		"issuer with a slash":   claims(map[string]any{"iss": testIssuer + "/"}),
		"no issuer":             claims(map[string]any{"iss": nil}),
		"no end":                claims(map[string]any{"exp": nil}),
		"end is a string":       claims(map[string]any{"exp": "9999999999"}),
		"end is vast":           claims(map[string]any{"exp": 1e300}),
		"end is negative":       claims(map[string]any{"exp": -1}),
		"a second past":         claims(map[string]any{"exp": start.Unix() - 31}),
		"at the skew":           claims(map[string]any{"exp": start.Unix() - 30}),
		"not yet":               claims(map[string]any{"nbf": start.Unix() + 31}),
		"nobody":                claims(map[string]any{"sub": nil, "client_id": nil}),
		"bound to what?":        claims(map[string]any{"cnf": map[string]any{"kid": "x"}}),
		"bound to nothing":      claims(map[string]any{"cnf": map[string]any{}}),
		"20 KB":                 claims(map[string]any{"x": strings.Repeat("x", 20<<10)}),
		"two parts":             parts[0] + "." + parts[1],
		"five parts":            whole + ".x.y",
		"JSON":                  `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"opaque":                "0123456789abcdef",
		"empty":                 "", "dots": "..",
	} {
		c, err := verifyText(within(t), v, token)
		if !Is(err, InvalidToken) || !reflect.DeepEqual(c, Claims{}) && c.Subject != "" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if err != nil && len(token) > 10 && (strings.Contains(err.Error(), parts[1]) || strings.Contains(err.Error(), token)) {
			t.Errorf("%s: the error repeats the token: %v", name, err)
		}
	}
	if _, err := verifyText(within(t), v, whole); err != nil {
		t.Errorf("the good one among them: %v", err)
	}
	if _, err := verifyText(within(t), &JWTVerifier{Issuer: testIssuer, Audiences: []string{"wanted"}, Keys: v.Keys, Now: v.Now}, whole); err == nil ||
		!strings.Contains(err.Error(), `"`+testAudience+`"`) || !strings.Contains(err.Error(), `"wanted"`) {
		t.Errorf("the error does not name both audiences: %v", err)
	}
	if _, err := verifyText(within(t), &JWTVerifier{Issuer: testIssuer, Keys: v.Keys, Now: v.Now}, whole); !Is(err, InvalidToken) {
		t.Errorf("without an audience: %v", err)
	}
}

func TestVerifyWithoutKeysIsUnavailable(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	s, p, clock := newSet(t, "")
	p.set(500, "")
	v := &JWTVerifier{Issuer: testIssuer, Audiences: []string{testAudience}, Keys: s, Now: clock.now}
	_, err := verifyText(within(t), v, issue(t, key, jose.ES256, nil, good(nil)))
	if e := wantKind(t, err, Unavailable); e.RetryAfter <= 0 {
		t.Errorf("%+v", e)
	}
}

func FuzzVerify(f *testing.F) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), append(make([]byte, 31), 1))
	if err != nil {
		f.Fatal(err)
	}
	pub := jose.JSONWebKey{Key: key.Public()}
	s := &KeySet{Caller: &EndpointCaller{Now: func() time.Time { return start }}, fetchedAt: start, lastFetchTry: start}
	text, _ := json.Marshal(pub)
	k, err := parseKey(text)
	if err != nil {
		f.Fatal(err)
	}
	s.keys = []verificationKey{k}
	v := &JWTVerifier{Issuer: testIssuer, Audiences: []string{testAudience}, Keys: s, Now: s.Caller.Now}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		f.Fatal(err)
	}
	token, err := signClaims(signer, good(nil))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(token)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := verifyText(t.Context(), v, text)
		if err == nil && (c.Subject != "ann" || strings.Split(text, ".")[1] != strings.Split(token, ".")[1]) {
			t.Fatalf("%q is valid: %+v", text, c)
		}
		if read, err := ReadJWT(text); err == nil {
			_, _ = read.Issuer()
		}
	})
}

func FuzzClaims(f *testing.F) {
	f.Add(`{"iss":"x","aud":["a"],"exp":1.5,"scp":["a b"],"cnf":{"jkt":"x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		v := &JWTVerifier{Issuer: testIssuer, Audiences: []string{testAudience}, Now: func() time.Time { return start }}
		claims, err := strictjson.ParseObject([]byte(text))
		if err != nil {
			return
		}
		c, err := v.checkClaims(claims)
		if err == nil && (c.Issuer != testIssuer || !c.IsFor(v.Audiences) || c.Expires.Before(start.Add(-maxClockSkew))) {
			t.Fatalf("%q is read as %+v", text, c)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	text, _ := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	k, err := parseKey(text)
	if err != nil {
		b.Fatal(err)
	}
	now := func() time.Time { return start }
	s := &KeySet{Caller: &EndpointCaller{Now: now}, fetchedAt: start, lastFetchTry: start, keys: []verificationKey{k}}
	v := &JWTVerifier{Issuer: testIssuer, Audiences: []string{testAudience}, Keys: s, Now: now}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		b.Fatal(err)
	}
	token, err := signClaims(signer, good(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verifyText(b.Context(), v, token); err != nil {
			b.Fatal(err)
		}
	}
}
