package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// start is a time that tests take for now.
var start = time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)

// claimsOf returns what a signed token says, without any check.
func claimsOf(t *testing.T, token string) map[string]any {
	t.Helper()
	var m map[string]any
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestTokenRequest(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	signer, err := NewAssertionSigner(key, "", "k1")
	if err != nil {
		t.Fatal(err)
	}
	form := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Set(pairs[i], pairs[i+1])
		}
		return v
	}
	const r = "https://h/mcp"
	code := AuthorizationCodeGrant("c1", "v1", "http://127.0.0.1:1/callback", r)
	for _, test := range []struct {
		name   string
		client Client
		lists  []string
		grant  Grant
		basic  string
		want   url.Values
	}{
		{"public", Client{ID: "me"}, nil, code, "", form("grant_type", "authorization_code", "code", "c1", "code_verifier", "v1", "redirect_uri", "http://127.0.0.1:1/callback", "resource", r, "client_id", "me")},
		{"basic, encoded first", Client{ID: "a b:ü", Secret: "s+ /:"}, nil, RefreshTokenGrant("r1", r, nil), "a+b%3A%C3%BC:s%2B+%2F%3A", form("grant_type", "refresh_token", "refresh_token", "r1", "resource", r)},
		{"post, as listed", Client{ID: "me", Secret: "s"}, []string{"client_secret_post"}, ClientCredentialsGrant(r, []string{"a", "b"}), "", form("grant_type", "client_credentials", "resource", r, "scope", "a b", "client_id", "me", "client_secret", "s")},
		{"none, as registered", Client{ID: "me", Secret: "s", AuthMethod: ClientAuthNone}, nil, DeviceCodeGrant("d1", ""), "", form("grant_type", "urn:ietf:params:oauth:grant-type:device_code", "device_code", "d1", "client_id", "me")},
		{"basic before post", Client{ID: "me", Secret: "s"}, []string{"client_secret_post", "client_secret_basic"}, JWTBearerGrant("j1", r, nil), "me:s", form("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion", "j1", "resource", r)},
		{"exchange", Client{ID: "me"}, nil, TokenExchangeGrant(TokenExchangeRequest{SubjectToken: "s1", SubjectTokenType: TypeIDToken, RequestedTokenType: TypeIDJAG, Audience: "https://as", Resource: r}), "", form("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token", "s1", "subject_token_type", TypeIDToken, "requested_token_type", TypeIDJAG, "audience", "https://as", "resource", r, "client_id", "me")},
		{"key", Client{ID: "me", Key: signer}, []string{"private_key_jwt"}, ClientCredentialsGrant(r, nil), "", form("grant_type", "client_credentials", "resource", r, "client_id", "me", "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got *http.Request
			addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				got = r
				reply(w, 200, `{"access_token":"t1","token_type":"bearer","expires_in":"3600","refresh_token":"r2","scope":"a b"}`)
			})
			c.Now = func() time.Time { return start }
			token, err := c.RequestToken(within(t), ServerMetadata{Issuer: "https://as", TokenEndpoint: addr + "/token", AuthMethods: test.lists}, test.client, test.grant, nil)
			want := Token{AccessToken: "t1", Type: "Bearer", RefreshToken: "r2", Scopes: []string{"a", "b"}, Lifetime: time.Hour, Expires: start.Add(time.Hour)}
			if err != nil || !reflect.DeepEqual(token, want) {
				t.Fatalf("%+v, %v", token, err)
			}
			basic, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(got.Header.Get("Authorization"), "Basic "))
			if string(basic) != test.basic || got.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || got.Header.Get("Accept") != "application/json" {
				t.Errorf("Authorization %q, header %v", basic, got.Header)
			}
			assertion := got.PostForm.Get("client_assertion")
			got.PostForm.Del("client_assertion")
			if !reflect.DeepEqual(got.PostForm, test.want) {
				t.Errorf("form %v", got.PostForm)
			}
			if test.client.Key == nil {
				return
			}
			jws, err := jose.ParseSignedCompact(assertion, []jose.SignatureAlgorithm{jose.ES256})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := jws.Verify(key.Public()); err != nil || jws.Signatures[0].Header.KeyID != "k1" {
				t.Errorf("assertion: %v, %+v", err, jws.Signatures[0].Header)
			}
			m := claimsOf(t, assertion)
			if m["iss"] != "me" || m["sub"] != "me" || m["aud"] != "https://as" || m["jti"] == "" || m["iat"] != float64(start.Unix()) || m["exp"] != float64(start.Unix()+120) {
				t.Errorf("assertion %v", m)
			}
		})
	}
}

func TestTokenAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, body string
		status     int
		want       Token // if kind is -1
		kind       ErrorKind
	}{
		{"least", `{"access_token":"t1","token_type":"Bearer"}`, 200, Token{AccessToken: "t1", Type: "Bearer"}, -1},
		{"created, no type", `{"access_token":"t1"}`, 201, Token{AccessToken: "t1", Type: "Bearer"}, -1},
		{"negative life", `{"access_token":"t1","token_type":"Bearer","expires_in":-5,"refresh_token":"r2"}`, 200, Token{AccessToken: "t1", Type: "Bearer", RefreshToken: "r2"}, -1},
		{"life that is no number", `{"access_token":"t1","token_type":"Bearer","expires_in":"soon"}`, 200, Token{AccessToken: "t1", Type: "Bearer"}, -1},
		{"life without end", `{"access_token":"t1","token_type":"Bearer","expires_in":1e300}`, 200, Token{AccessToken: "t1", Type: "Bearer", Lifetime: strictjson.MaxLifetime, Expires: start.Add(strictjson.MaxLifetime)}, -1},
		{"nulls", `{"access_token":"t1","token_type":"Bearer","refresh_token":null,"scope":null,"expires_in":null}`, 200, Token{AccessToken: "t1", Type: "Bearer"}, -1},
		{"scopes in an array, refresh token with a space", `{"access_token":"t1","scope":["a","b c"],"refresh_token":"r 2"}`, 200, Token{AccessToken: "t1", Type: "Bearer", Scopes: []string{"a", "b", "c"}, RefreshToken: "r 2"}, -1},
		{"exchanged", `{"access_token":"t1","token_type":"N_A","issued_token_type":"` + TypeIDJAG + `"}`, 200, Token{AccessToken: "t1", Type: "N_A", IssuedType: TypeIDJAG}, -1},
		{"other type", `{"access_token":"t1","token_type":"mac"}`, 200, Token{}, Invalid},
		{"bound without a proof", `{"access_token":"t1","token_type":"DPoP"}`, 200, Token{}, Invalid},
		{"no token", `{"token_type":"Bearer"}`, 200, Token{}, Invalid},
		{"header injection", `{"access_token":"t1\r\nX: y","token_type":"Bearer"}`, 200, Token{}, Invalid},
		{"token twice", `{"access_token":"t1","access_token":"t2","token_type":"Bearer"}`, 200, Token{}, Invalid},
		{"page", `<html>sign in</html>`, 200, Token{}, Invalid},
		{"empty", ``, 200, Token{}, Invalid},
		{"huge", `{"access_token":"` + strings.Repeat("x", 2<<20) + `"}`, 200, Token{}, Invalid},
		{"error inside a 200", `{"error":"invalid_grant","error_description":"spent"}`, 200, Token{}, InvalidGrant},
		{"spent", `{"error":"invalid_grant"}`, 400, Token{}, InvalidGrant},
		{"spent, with a 500", `{"error":"invalid_grant"}`, 500, Token{}, InvalidGrant},
		{"client", `{"error":"invalid_client"}`, 401, Token{}, InvalidClient},
		{"target", `{"error":"invalid_target"}`, 400, Token{}, InvalidTarget},
		{"pending", `{"error":"authorization_pending"}`, 400, Token{}, AuthorizationPending},
		{"slow down", `{"error":"slow_down"}`, 429, Token{}, SlowDown},
		{"device code expired", `{"error":"expired_token"}`, 400, Token{}, ExpiredToken},
		{"denied", `{"error":"access_denied"}`, 403, Token{}, AccessDenied},
		{"nonce, but no proof", `{"error":"use_dpop_nonce"}`, 400, Token{}, UseDPoPNonce},
		{"other code", `{"error":"AADSTS9010010"}`, 400, Token{}, Refused},
		{"code that is an object", `{"error":{"code":1}}`, 400, Token{}, Refused},
		{"page of a proxy", `<html>502</html>`, 502, Token{}, Unavailable},
		{"code of an outage", `{"error":"temporarily_unavailable"}`, 400, Token{}, Unavailable},
		{"busy", ``, 429, Token{}, Unavailable},
		{"redirect", ``, 307, Token{}, Invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Retry-After", start.Add(9*time.Second).Format(http.TimeFormat))
				reply(w, test.status, test.body)
			})
			c.Now = func() time.Time { return start }
			token, err := c.RequestToken(within(t), ServerMetadata{TokenEndpoint: addr + "/token?tenant=1"}, Client{ID: "me"}, RefreshTokenGrant("r1", "", nil), nil)
			if asked != 1 {
				t.Errorf("asked %d times", asked)
			}
			if test.kind < 0 {
				if err != nil || !reflect.DeepEqual(token, test.want) {
					t.Errorf("%+v, %v", token, err)
				}
				return
			}
			e := wantKind(t, err, test.kind)
			if test.kind == Unavailable && e.RetryAfter != 9*time.Second {
				t.Errorf("RetryAfter %v", e.RetryAfter)
			}
			if e.URL != addr+"/token" || !e.RequestSent && test.status != 307 && test.name != "huge" {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestTokenServerThatHangs(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	done := make(chan struct{})
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // all was read: the token has rotated
		close(got)
		<-done
	})
	t.Cleanup(func() { close(done) })
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-got
		cancel()
	}()
	_, err := c.RequestToken(ctx, ServerMetadata{TokenEndpoint: addr}, Client{ID: "me"}, RefreshTokenGrant("secret-refresh", "", nil), nil)
	if e := wantKind(t, err, Unavailable); !e.RequestSent || strings.Contains(e.Error(), "secret-refresh") {
		t.Errorf("%+v", e)
	}
	_, err = c.RequestToken(ctx, ServerMetadata{TokenEndpoint: "https://127.0.0.1:1/"}, Client{ID: "me"}, RefreshTokenGrant("r", "", nil), nil)
	if e := wantKind(t, err, Unavailable); e.RequestSent {
		t.Errorf("nothing was sent: %+v", e)
	}
}

func TestTokenErrorKeepsSecrets(t *testing.T) {
	t.Parallel()
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		reply(w, 400, `{"error":"x `+r.Form.Get("refresh_token")+`","error_description":"secret `+r.Form.Get("client_secret")+` is wrong \u001b[2J"}`)
	})
	_, err := c.RequestToken(within(t), ServerMetadata{TokenEndpoint: addr, AuthMethods: []string{ClientSecretPost}}, Client{ID: "me", Secret: "hunter2!"}, RefreshTokenGrant("refresh-1", "", nil), nil)
	e := wantKind(t, err, Refused)
	for _, s := range []string{"hunter2", "refresh-1", "\x1b"} {
		if strings.Contains(e.Error(), s) || strings.Contains(e.Description, s) || strings.Contains(e.Code, s) {
			t.Errorf("%q shows: %v", s, e)
		}
	}
}

func TestClientThatCannotAuthenticate(t *testing.T) {
	t.Parallel()
	signer, err := NewAssertionSigner(newKey(t, elliptic.P384()), "ES384", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		client Client
		lists  []string
	}{
		"no id":                 {Client{}, nil},
		"secret, none taken":    {Client{ID: "me", Secret: "s"}, []string{"private_key_jwt", "none"}},
		"key, not taken":        {Client{ID: "me", Key: signer}, []string{"client_secret_basic"}},
		"no secret":             {Client{ID: "me", AuthMethod: ClientSecretBasic}, nil},
		"no key":                {Client{ID: "me", AuthMethod: PrivateKeyJWT}, nil},
		"unknown method":        {Client{ID: "me", AuthMethod: "tls_client_auth"}, nil},
		"key, issuer not known": {Client{ID: "me", Key: signer}, nil},
	} {
		c := &EndpointCaller{}
		_, err := c.RequestToken(within(t), ServerMetadata{TokenEndpoint: "https://as.invalid/", AuthMethods: test.lists}, test.client, ClientCredentialsGrant("", nil), nil)
		if !Is(err, Unsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = (&EndpointCaller{}).RequestToken(within(t), ServerMetadata{TokenEndpoint: "http://as.invalid/"}, Client{ID: "me"}, ClientCredentialsGrant("", nil), nil)
	wantKind(t, err, Invalid)
}

func TestPrivateKeys(t *testing.T) {
	t.Parallel()
	key := newKey(t, elliptic.P256())
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, data []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))
	}
	for _, text := range []string{block("PRIVATE KEY", pkcs8), block("EC PARAMETERS", []byte{1}) + block("EC PRIVATE KEY", sec1)} {
		if got, err := ParsePrivateKey([]byte(text)); err != nil || !key.Equal(got) {
			t.Errorf("%v, %v", got, err)
		}
	}
	for _, text := range []string{"", "x", block("PUBLIC KEY", pkcs8), block("PRIVATE KEY", []byte("SECRET")), block("RSA PRIVATE KEY", sec1), block("ENCRYPTED PRIVATE KEY", nil)} {
		if _, err := ParsePrivateKey([]byte(text)); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%.30q: %v", text, err)
		}
	}
	if _, err := NewAssertionSigner(key, "RS256", ""); err == nil {
		t.Error("an EC key signs with RS256")
	}
	if _, err := NewAssertionSigner(newKey(t, elliptic.P224()), "", ""); err == nil {
		t.Error("a P-224 key is taken")
	}
}

func TestTokenWithProof(t *testing.T) {
	t.Parallel()
	prover, err := NewProver(newKey(t, elliptic.P256()), func() time.Time { return start })
	if err != nil {
		t.Fatal(err)
	}
	var proofs []map[string]any
	always, fresh := false, false
	addr, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		m := claimsOf(t, r.Header.Get("DPoP"))
		proofs = append(proofs, m)
		if fresh {
			w.Header().Set("DPoP-Nonce", NewState())
		} else {
			w.Header().Set("DPoP-Nonce", "n1")
		}
		if m["nonce"] != "n1" || always {
			reply(w, 400, `{"error":"use_dpop_nonce"}`)
			return
		}
		reply(w, 200, `{"access_token":"t1","token_type":"dpop"}`)
	})
	server := ServerMetadata{TokenEndpoint: addr + "/token?x"}
	token, err := c.RequestToken(within(t), server, Client{ID: "me"}, ClientCredentialsGrant("", nil), prover)
	if err != nil || token.Type != "DPoP" || len(proofs) != 2 {
		t.Fatalf("%+v, %v, %d proofs", token, err, len(proofs))
	}
	if proofs[0]["jti"] == proofs[1]["jti"] || proofs[1]["htu"] != addr+"/token" || proofs[1]["htm"] != "POST" || proofs[1]["ath"] != nil {
		t.Errorf("proofs %v", proofs)
	}
	always = true // the same nonce again is no reason to try again
	_, err = c.RequestToken(within(t), server, Client{ID: "me"}, ClientCredentialsGrant("", nil), prover)
	if wantKind(t, err, UseDPoPNonce); len(proofs) != 3 {
		t.Errorf("%d proofs", len(proofs))
	}
	fresh = true // a new one at each time is tried once
	_, err = c.RequestToken(within(t), server, Client{ID: "me"}, ClientCredentialsGrant("", nil), prover)
	if wantKind(t, err, UseDPoPNonce); len(proofs) != 5 {
		t.Errorf("%d proofs", len(proofs))
	}
}

func FuzzToken(f *testing.F) {
	f.Add(200, `{"access_token":"t1","token_type":"Bearer","expires_in":"3600","scope":"a b"}`)
	f.Add(400, `{"error":"invalid_grant","error_description":"x"}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		c := &EndpointCaller{Now: func() time.Time { return start }}
		got, err := c.parseResponse("test", "https://as/token", response{status: status, header: http.Header{}, body: []byte(body)}, false, []string{"secret-1"})
		if err != nil {
			if strings.Contains(err.Error(), "secret-1") {
				t.Fatalf("%q shows in %v", body, err)
			}
			return
		}
		token, err := c.parseToken(got, true)
		if err == nil && (token.AccessToken == "" || strings.ContainsAny(token.AccessToken, " \r\n") || token.Lifetime < 0 || token.Lifetime > strictjson.MaxLifetime) {
			t.Fatalf("%q is read as %+v", body, token)
		}
		_, _ = c.parseRegistration(got, ServerMetadata{}, ClientMetadata{})
		_, _ = readClaims(got)
	})
}
