package client

import (
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// TestSignOut: both tokens are revoked; what is stored is deleted, also where the server does not answer.
func TestSignOut(t *testing.T) {
	for _, name := range []string{"revoked", "signed", "hangs", "no endpoint"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var hints []string
				as := w.wire["as.test"]
				w.wire["as.test"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/revoke" {
						as.ServeHTTP(rw, r)
						return
					}
					if name == "hangs" {
						hang(rw, r)
						return
					}
					body, _ := io.ReadAll(r.Body)
					form, _ := url.ParseQuery(string(body))
					hints = append(hints, form.Get("token_type_hint"))
					if name == "signed" && form.Get("token_type_hint") == "access_token" {
						w.refuse(rw, "unsupported_token_type")
					}
				})
				c := w.credential(t, w.options())
				w.sign(t, c, time.Hour)
				e, err := w.store.Load(t.Context(), c.key)
				bridgetest.Must(t, err)
				s := e.Credential
				if name != "no endpoint" {
					s.RevocationEndpoint = testIssuer + "/revoke"
				}
				_, err = w.store.Save(t.Context(), c.key, s, e.Generation)
				bridgetest.Must(t, err)
				_ = access(t, c)
				begun := time.Now()
				revoked, err := c.SignOut(t.Context())
				bridgetest.Must(t, err)
				wantNoSecret(t, revoked)
				switch {
				case (name == "revoked" || name == "signed") && (revoked != nil || len(hints) != 2):
					t.Errorf("revoked %q, error %v", hints, revoked)
				case name == "hangs" && (!auth.Is(revoked, auth.Unavailable) || time.Since(begun) != revokeTimeout):
					t.Errorf("after %v the error is %v", time.Since(begun), revoked)
				case name == "no endpoint" && !auth.Is(revoked, auth.Unsupported):
					t.Errorf("the error is %v", revoked)
				}
				if access(t, c) != "" {
					t.Error("there is still a token")
				}
			})
		})
	}
}
