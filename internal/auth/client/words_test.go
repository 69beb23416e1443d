package client

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// TestWords: what a person reads when a sign-in fails says what, where, and what to do.
func TestWords(t *testing.T) {
	t.Parallel()
	const meta = "/.well-known/oauth-authorization-server"
	for _, x := range []struct {
		name   string
		change func(w *world, o *Options, p *person)
		says   []string
	}{
		{"2 MiB", func(w *world, _ *Options, _ *person) {
			w.then(meta, answer(200, strings.Repeat(" ", 2<<20)))
		}, []string{"as.test/.well-known", "larger than 1 MiB", "tell the operator"}},
		{"other issuer", func(w *world, _ *Options, _ *person) { w.meta["issuer"] = "https://evil.test" }, []string{"https://evil.test", "--issuer-alias https://as.test=https://evil.test"}},
		{"javascript", func(w *world, _ *Options, _ *person) { w.meta["authorization_endpoint"] = "javascript:alert(1)" }, []string{"as.test/.well-known", "javascript", "tell the operator"}},
		{"file", func(w *world, _ *Options, _ *person) { w.meta["token_endpoint"] = "file:///etc/passwd" }, []string{"as.test/.well-known", "token_endpoint", "tell the operator"}},
		{"redirect loop", func(w *world, _ *Options, _ *person) {
			for range 10 {
				w.then(meta, answer(302, "", "Location", meta))
			}
		}, []string{"as.test/.well-known", "redirects more than 3 times", "tell the operator"}},
		{"metadata service", func(w *world, o *Options, _ *person) {
			w.prm["authorization_servers"] = []string{"http://169.254.169.254"}
		}, []string{"http://169.254.169.254", "not https", "tell the operator"}},
		{"metadata service, https", func(w *world, o *Options, _ *person) {
			o.HTTPClient = guarded(t, "https://mcp.test")
			w.challenge = `Bearer resource_metadata="https://169.254.169.254/x"`
		}, []string{"https://169.254.169.254/x", "not allowed", "metadata service"}},
		{"private", func(w *world, o *Options, _ *person) {
			o.HTTPClient = guarded(t, "http://mcp.test")
			w.challenge = `Bearer resource_metadata="https://localhost:1/x"`
		}, []string{"https://localhost:1/x", "127.0.0.1", "on this machine", "--allow-private-auth"}},
		{"other resource", func(w *world, _ *Options, _ *person) { w.resource = "https://evil.test/mcp" }, []string{"https://evil.test/mcp", "https://mcp.test/mcp", "use the address that it names"}},
		{"no S256", func(w *world, _ *Options, _ *person) { w.meta["code_challenge_methods_supported"] = nil }, []string{"as.test/authorize", "S256", "tell the operator"}},
		{"no registration", func(w *world, _ *Options, _ *person) { w.meta["registration_endpoint"] = nil }, []string{"https://as.test", "/callback", "--client-id"}},
		{"registration refused", func(w *world, _ *Options, _ *person) {
			w.then("/register", answer(403, `{"error":"access_denied"}`))
		}, []string{"as.test/register", "access_denied", "/callback", "--client-id"}},
		{"registration refused 2", func(w *world, _ *Options, _ *person) {
			w.then("/register", answer(400, `{"error":"invalid_redirect_uri"}`))
		}, []string{"as.test/register", "invalid_redirect_uri", "/callback", "--client-id"}},
		{"registration with another redirect", func(w *world, _ *Options, _ *person) {
			w.then("/register", answer(201, `{"client_id":"x","redirect_uris":["https://other.test/cb"]}`))
		}, []string{"as.test/register", "other redirect URIs", "/callback", "--client-id"}},
		{"registration html", func(w *world, _ *Options, _ *person) {
			w.then("/register", answer(404, `<html>`, "Content-Type", "text/html"))
		}, []string{"as.test/register", "404", "--client-id"}},
		{"token html", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(200, `<html>`, "Content-Type", "text/html"))
		}, []string{"as.test/token", "not JSON", "tell the operator"}},
		{"token error in 200", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(200, `{"error":"invalid_grant"}`))
		}, []string{"as.test/token", "invalid_grant", "sign in again"}},
		{"token invalid_client", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(401, `{"error":"invalid_client"}`))
		}, []string{"as.test/token", "invalid_client", "--client-id"}},
		{"token target", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(400, `{"error":"invalid_target"}`))
		}, []string{"as.test/token", "invalid_target", "--resource off"}},
		{"token redirect", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(307, ``, "Location", "https://evil.test"))
		}, []string{"as.test/token", "redirects", "must be the one that answers"}},
		{"token 503", func(w *world, _ *Options, _ *person) {
			w.then("/token", answer(503, ``))
		}, []string{"as.test/token", "503", "try again later"}},
		{"callback error", func(w *world, _ *Options, p *person) {
			p.change = func(s string) string { return strings.Replace(s, "?code=", "?error=access_denied&x=", 1) }
		}, []string{"access_denied", "sign in again"}},
		{"callback error scope", func(w *world, _ *Options, p *person) {
			p.change = func(s string) string { return strings.Replace(s, "?code=", "?error=invalid_scope&x=", 1) }
		}, []string{"invalid_scope", "--scope"}},
		{"callback no code", func(w *world, _ *Options, p *person) {
			p.change = func(s string) string { return strings.Replace(s, "?code=", "?x=", 1) }
		}, []string{"no code", "sign in again"}},
		{"callback iss", func(w *world, _ *Options, p *person) {
			w.meta["authorization_response_iss_parameter_supported"] = true
			p.change = func(s string) string { return strings.Replace(s, "as.test", "evil.test", 1) }
		}, []string{"another issuer", "sign in again"}},
		{"callback never", func(w *world, o *Options, p *person) {
			p.change = func(string) string { return "" }
			o.SignIn = func(ctx context.Context, c *Credential, _ SignInRequired) error {
				return signIn(ctx, c, SignInOptions{Browser: p, Timeout: time.Millisecond})
			}
		}, []string{testIssuer, "nobody has answered in time", "sign in again"}},
		{"store shared", func(w *world, o *Options, _ *person) { bridgetest.Must(t, os.Chmod(w.store.Dir(), 0o755)) }, []string{"not safe for secrets", "chmod 700"}},
		{"metadata away", func(w *world, o *Options, _ *person) {
			w.then(meta, answer(503, ""))
			w.then("/.well-known/openid-configuration", answer(503, ""))
		}, []string{"as.test/.well-known", "503"}},
		{"issuer without metadata", func(w *world, o *Options, _ *person) { w.then(meta, answer(404, "")) }, []string{"as.test/.well-known", "has none", "tell the operator"}},
		{"port in use", func(w *world, o *Options, _ *person) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			bridgetest.Must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			o.RedirectPort = l.Addr().(*net.TCPAddr).Port
		}, []string{"127.0.0.1:", "--redirect-port"}},
		{"nobody", func(w *world, o *Options, _ *person) { o.SignIn = nil }, []string{"nobody has signed in to https://mcp.test/mcp"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o, p := w.person(t)
			x.change(w, &o, p)
			c := w.credential(t, o)
			_, _, err := w.post(t, c)
			for _, part := range x.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the error: %v", part, err)
				}
			}
		})
	}
}

// guarded returns the client of a user who has given this address.
func guarded(t *testing.T, named string) *http.Client {
	c, err := httpdial.NewGuardedClient(httpdial.GuardedClientOptions{ConfiguredURL: named})
	bridgetest.Must(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}
