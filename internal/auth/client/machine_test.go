package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// withSecret is the ClientAuthFunc of a client that has a secret.
func withSecret() (tokenstore.Secret, *auth.AssertionSigner, error) {
	return tokenstore.NewSecret("secret-canary"), nil, nil
}

// TestClientCredentials: a machine signs in by itself, and again when the token ends.
func TestClientCredentials(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	bridgetest.Must(t, err)
	signer, err := auth.NewAssertionSigner(key, "ES256", "")
	bridgetest.Must(t, err)
	for _, withKey := range []bool{false, true} {
		t.Run(map[bool]string{false: "secret", true: "key"}[withKey], func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				o := w.options()
				o.Machine, o.ClientAuth = ClientCredentials{}, withSecret
				if withKey {
					o.ClientAuth = func() (tokenstore.Secret, *auth.AssertionSigner, error) { return tokenstore.Secret{}, signer, nil }
				}
				c := w.credential(t, o)
				w.wantServed(t, c)
				time.Sleep(2 * time.Hour)
				w.wantServed(t, c)
				w.wantCount(t, "/token", 2)
				for i, form := range w.forms {
					basic := w.heads[i].Get("Authorization") != ""
					if form.Get("grant_type") != "client_credentials" || basic == withKey || form.Has("client_assertion") != withKey {
						t.Errorf("request %d is %v", i, form.Get("grant_type"))
					}
				}
				w.wantCount(t, "/authorize", 0)
			})
		})
	}
}

// TestRotatedSecret: a secret and a key are asked for at each use, so that new ones count with nothing restarted.
func TestRotatedSecret(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		secret := "old-canary"
		o := w.options()
		o.Machine = ClientCredentials{}
		o.ClientAuth = func() (tokenstore.Secret, *auth.AssertionSigner, error) {
			return tokenstore.NewSecret(secret), nil, nil
		}
		c := w.credential(t, o)
		for i, now := range []string{"old-canary", "new-canary"} {
			secret = now
			w.wantServed(t, c)
			r := http.Request{Header: w.heads[i]}
			if _, got, _ := r.BasicAuth(); got != secret {
				t.Errorf("request %d had another secret", i)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// TestJWTBearer: the assertion is asked for at each use; what is refused is not tried again at once.
func TestJWTBearer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		now := "one-canary"
		o := w.options()
		o.Machine = JWTBearer{"file", func() (tokenstore.Secret, error) { return tokenstore.NewSecret(now), nil }}
		c := w.credential(t, o)
		w.then("/token", answer(400, `{"error":"invalid_grant"}`))
		for range 4 {
			_, _, err := w.post(t, c)
			if _, ok := errors.AsType[*PermanentError](err); !ok {
				t.Fatalf("the error is %v", err)
			}
		}
		w.wantCount(t, "/token", 1)
		now = "two-canary"
		time.Sleep(maxRenewPause)
		w.wantServed(t, c)
		w.wantCount(t, "/token", 2)
		for i, want := range []string{"one-canary", "two-canary"} {
			if got := w.forms[i].Get("assertion"); got != want {
				t.Errorf("assertion %q, want %q", got, want)
			}
		}
	})
}

// TestEnterprise: the id token is exchanged at the company's provider, and what it gives at the server's.
func TestEnterprise(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		idp := newFake("https://idp.test", "")
		w.wire["idp.test"] = idp
		idp.then("/token", answer(200, `{"access_token":"jag-canary","token_type":"N_A","issued_token_type":"`+auth.TypeIDJAG+`"}`))
		o := w.options()
		o.ClientAuth = withSecret
		o.Machine = EnterpriseManaged{IDP: auth.ServerMetadata{Issuer: "https://idp.test", TokenEndpoint: "https://idp.test/token"}, IDPClient: auth.Client{ID: "c1"},
			IDToken: func() (tokenstore.Secret, error) { return tokenstore.NewSecret("id-canary"), nil }}
		w.wantServed(t, w.credential(t, o))
		x, j := idp.forms[0], w.forms[0]
		if x.Get("subject_token") != "id-canary" || x.Get("audience") != testIssuer || x.Get("resource") != testServer || x.Get("requested_token_type") != auth.TypeIDJAG {
			t.Errorf("the exchange was for %q at %q", x.Get("resource"), x.Get("audience"))
		}
		if j.Get("assertion") != "jag-canary" || !strings.HasPrefix(w.heads[0].Get("Authorization"), "Basic ") {
			t.Error("the assertion was not used with the client's secret")
		}
	})
}

// TestDPoP: a server that takes bound tokens only gets a proof with each request, with its nonce.
func TestDPoP(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.challenge, w.tokenType = `DPoP resource_metadata="https://mcp.test/.well-known/oauth-protected-resource"`, "DPoP"
		w.meta["dpop_signing_alg_values_supported"] = []string{"ES256"}
		nonce := func(rw http.ResponseWriter, r *http.Request) bool {
			return answer(401, "", "WWW-Authenticate", `DPoP error="use_dpop_nonce"`, "DPoP-Nonce", "n1")(rw, r)
		}
		w.then("/mcp", func(http.ResponseWriter, *http.Request) bool { return false }, nonce)
		w.then("/token", answer(400, `{"error":"use_dpop_nonce"}`, "DPoP-Nonce", "n0"))
		o := w.options()
		o.Machine, o.ClientAuth = ClientCredentials{}, withSecret
		c := w.credential(t, o)
		w.wantServed(t, c)
		w.wantServed(t, w.credential(t, o)) // the key is stored
		w.wantCount(t, "/token", 2)
		seen := map[string]bool{}
		for _, h := range w.seen[1:] {
			proof := h.Get("DPoP")
			if !strings.HasPrefix(h.Get("Authorization"), "DPoP ") || proof == "" || seen[proof] {
				t.Errorf("scheme %.5q, proof %v, seen before %v", h.Get("Authorization"), proof != "", seen[proof])
			}
			seen[proof] = true
		}
		if n := nonceOf(t, w.seen[1]); n != "n1" {
			t.Errorf("the nonce of the proof after a refusal is %q", n)
		}
		for _, h := range w.heads {
			if h.Get("DPoP") == "" {
				t.Error("a token request had no proof")
			}
		}
	})
}

// nonceOf returns the nonce of a request's proof.
func nonceOf(t *testing.T, h http.Header) string {
	t.Helper()
	parts := strings.Split(h.Get("DPoP"), ".")
	if len(parts) != 3 {
		t.Fatal("there is no proof")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	bridgetest.Must(t, err)
	var claims struct{ Nonce string }
	bridgetest.Must(t, json.Unmarshal(text, &claims))
	return claims.Nonce
}

// TestEnterpriseOther: what is no identity assertion does not go to the server.
func TestEnterpriseOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		idp := newFake("https://idp.test", "")
		w.wire["idp.test"] = idp
		idp.then("/token", answer(200, `{"access_token":"at-canary","token_type":"Bearer","issued_token_type":"`+auth.TypeAccessToken+`"}`))
		o := w.options()
		o.Machine = EnterpriseManaged{IDP: auth.ServerMetadata{Issuer: "https://idp.test", TokenEndpoint: "https://idp.test/token"}, IDPClient: auth.Client{ID: "c1"},
			IDToken: func() (tokenstore.Secret, error) { return tokenstore.NewSecret("id-canary"), nil }}
		_, _, err := w.post(t, w.credential(t, o))
		if _, ok := errors.AsType[*PermanentError](err); !ok {
			t.Errorf("the error is %v", err)
		}
		w.wantCount(t, "/token", 0)
	})
}

// TestDPoPRequired: a token that is not bound is not used.
func TestDPoPRequired(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := w.options()
		o.Machine, o.ClientAuth, o.DPoP = ClientCredentials{}, withSecret, DPoPRequire
		_, _, err := w.post(t, w.credential(t, o))
		if _, ok := errors.AsType[*PermanentError](err); !ok || !strings.Contains(err.Error(), "DPoP") {
			t.Errorf("the error is %v", err)
		}
	})
}
