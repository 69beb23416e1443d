package idp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

func TestMain(m *testing.M) { Main(m) }

// patience bounds each wait.
const patience = 2 * time.Minute

// A user uses one server with the client library of OAuth below the Go SDK.
type user struct {
	t *testing.T
	*client.Credential
	session *mcp.ClientSession
}

// openTo lets a person open addresses.
type openTo struct{ b *Browser }

func (o openTo) Open(addr string) error {
	_, err := o.b.Visit(context.Background(), addr, "")
	return err
}

// signsIn signs a person in, with a device code if device is set.
func signsIn(b *Browser, device bool) client.SignInFunc {
	return func(ctx context.Context, c *client.Credential, _ client.SignInRequired) error {
		o := client.SignInOptions{Browser: openTo{b}}
		if device {
			o.Browser = nil
		}
		f, err := c.BeginSignIn(ctx, o)
		if err != nil {
			return err
		}
		if device {
			if _, err := b.Visit(ctx, f.Instructions().URL, f.Instructions().UserCode); err != nil {
				f.Close()
				return err
			}
		}
		return f.Wait(ctx)
	}
}

// newUser returns one that has not connected yet. A store that o does not have is made.
func newUser(t *testing.T, s *Server, o client.Options) *user {
	t.Helper()
	if o.Store == nil {
		o.Store = newStore(t)
	}
	o.Server = s.URL
	o.OnError = func(err error) { t.Logf("notice: %v", err) }
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return &user{t: t, Credential: c}
}

func newStore(t *testing.T) *tokenstore.Store {
	t.Helper()
	store, err := tokenstore.Open(t.Context(), tokenstore.Options{Dir: filepath.Join(t.TempDir(), "auth")})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// connect begins a session.
func (u *user) connect() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	sdk := mcp.NewClient(&mcp.Implementation{Name: "user", Version: "1"}, nil)
	base := &http.Transport{}
	u.t.Cleanup(base.CloseIdleConnections)
	session, err := sdk.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: u.Server(),
		HTTPClient: &http.Client{Transport: &client.Transport{Base: base, Credential: u.Credential}}}, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	u.session = session
	u.t.Cleanup(func() { _ = session.Close() })
}

// call calls a tool.
func (u *user) call(tool string) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), patience)
	defer cancel()
	result, err := u.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": "hello"}})
	if err != nil {
		u.t.Fatalf("%s: %v", tool, err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != "hello" {
		u.t.Errorf("%s: %v", tool, result.Content)
	}
}

// TestLibrarySignIn: a person signs in with a browser, later for one scope more, and out. All that
// follow with the same store sign in no more.
func TestLibrarySignIn(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{Policy: "tools/call write -> mcp:write", DPoP: resource.DPoPOff})
	store, alice := newStore(t), NewBrowser("alice")
	o := client.Options{Store: store, SignIn: signsIn(alice, false), RedirectPort: freePort(t)} // with another port a client registers anew
	first := newUser(t, s, o)
	first.connect()
	first.call("read")
	p.Want(map[string]int{"registration 201": 1, "authorized": 1, "grant authorization_code": 1, "error invalid_grant": 0})

	second := newUser(t, s, o)
	second.connect()
	second.call("read")
	p.Want(map[string]int{"registration 201": 1, "authorized": 1, "grant authorization_code": 1})

	second.call("write")
	first.call("write")
	p.Want(map[string]int{"registration 201": 1, "authorized": 2, "grant authorization_code": 2})

	e, err := store.Load(t.Context(), first.Key())
	if err != nil || e.Credential.RefreshToken.IsZero() {
		t.Fatalf("no refresh token was issued (%v)", err)
	}
	revoked, err := first.SignOut(t.Context())
	if revoked != nil || err != nil {
		t.Errorf("signing out: %v, %v", revoked, err)
	}
	p.Want(map[string]int{"revocation 200": 1, "revocation 400": 1, "error invalid_grant": 0}) // a signed token cannot be revoked
}

// TestLibraryDevice: a person signs in on another machine, with a code.
func TestLibraryDevice(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Life: 2})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	u := newUser(t, s, client.Options{SignIn: signsIn(NewBrowser("alice"), true)})
	u.connect()
	u.call("read")
	p.Want(map[string]int{"grant urn:ietf:params:oauth:grant-type:device_code": 1, "grant authorization_code": 0})
	u.renews()
	p.Want(map[string]int{"error invalid_grant": 0, "family revoked": 0})
}

// renews calls until the token was renewed.
func (u *user) renews() {
	u.t.Helper()
	first, err := u.Token(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for now, end := first, time.Now().Add(patience); now.AccessToken == first.AccessToken; <-tick.C {
		u.call("read")
		if now, err = u.Token(u.t.Context()); err != nil || time.Now().After(end) {
			u.t.Fatalf("the token was not renewed: %v", err)
		}
	}
}

// TestLibraryRefresh: a token that lives for two seconds is renewed, also bound ones with a nonce.
func TestLibraryRefresh(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name string
		dpop resource.DPoPMode
	}{{"bearer", resource.DPoPOff}, {"DPoP", resource.DPoPRequire}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			p := Start(t, Options{Life: 2, Nonces: true})
			s := p.Serve(t, ServerOptions{DPoP: x.dpop})
			u := newUser(t, s, client.Options{SignIn: signsIn(NewBrowser("alice"), false)})
			u.connect()
			u.renews()
			token, err := u.Token(t.Context())
			if want := map[resource.DPoPMode]string{resource.DPoPOff: auth.SchemeBearer, resource.DPoPRequire: auth.SchemeDPoP}[x.dpop]; err != nil || token.Type != want {
				t.Errorf("the token is of the type %q, want %q (%v)", token.Type, want, err)
			}
			p.Want(map[string]int{"authorized": 1, "error invalid_grant": 0, "family revoked": 0})
		})
	}
}

// TestLibraryDocument: a client whose id is the address of its metadata document does not register.
func TestLibraryDocument(t *testing.T) {
	t.Parallel()
	const document = "https://client.example/mcp.json"
	o := client.Options{ClientMetadataURL: document, RedirectPort: freePort(t), SignIn: signsIn(NewBrowser("alice"), false)}
	p := Start(t, Options{Documents: map[string]any{document: map[string]any{
		"client_id": document, "client_name": "a document", "application_type": "native", "token_endpoint_auth_method": "none",
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
		"redirect_uris": []string{"http://127.0.0.1/callback"},
	}}})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	u := newUser(t, s, o)
	u.connect()
	u.call("read")
	p.Want(map[string]int{"registration 201": 0, "grant authorization_code": 1})
}

func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(peers.FreeAddr(t)).Port())
}

// TestLibraryMachines: nobody signs in. The server asks about tokens that are not signed.
func TestLibraryMachines(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := auth.NewAssertionSigner(key, "ES256", "key")
	if err != nil {
		t.Fatal(err)
	}
	const server, secret = "server", "the secret of the server"
	withKey := MachineClient("with-key", "")
	delete(withKey, "client_secret")
	withKey["token_endpoint_auth_method"], withKey["token_endpoint_auth_signing_alg"] = "private_key_jwt", "ES256"
	withKey["jwks"] = map[string]any{"keys": []any{publicJWK(key)}}
	p := Start(t, Options{Life: 2, Opaque: true, Clients: []Client{MachineClient("with-secret", secret), MachineClient(server, secret), withKey}})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff, Introspection: &resource.Introspection{
		Endpoint: p.URL + "/token/introspection", Issuer: p.URL, ClientID: server, ClientSecret: func() (string, error) { return secret, nil }}})
	proof := func(secret string, key *auth.AssertionSigner) client.ClientAuthFunc {
		return func() (tokenstore.Secret, *auth.AssertionSigner, error) {
			return tokenstore.NewSecret(secret), key, nil
		}
	}
	for _, o := range []client.Options{
		{ClientID: "with-secret", ClientAuth: proof(secret, nil), Machine: client.ClientCredentials{}},
		{ClientID: "with-key", ClientAuth: proof("", signer), Machine: client.ClientCredentials{}},
	} {
		t.Run(o.ClientID, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, s, o)
			u.connect()
			tick, deadline := time.NewTicker(200*time.Millisecond), time.After(patience)
			defer tick.Stop()
			for u.call("read"); p.Counts()["grant client_credentials"] < 4; u.call("read") { // both have renewed
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("no token was renewed: %v", p.Counts())
				}
			}
		})
	}
}

// publicJWK returns the public half of a key.
func publicJWK(key *ecdsa.PrivateKey) any {
	return jose.JSONWebKey{Key: key.Public(), KeyID: "key", Algorithm: "ES256", Use: "sig"}
}
