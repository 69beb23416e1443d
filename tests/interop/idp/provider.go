// Package idp runs a real identity provider for the tests of authorization, npm's
// oidc-provider, with persons and browsers that fill in its forms, and MCP servers
// that take its tokens. Everything is on loopback.
package idp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// Options say what the provider is like. The zero value has dynamic registration,
// device codes and signed tokens that live for five minutes.
type Options struct {
	Life         int            `json:"life,omitempty"`         // how long access tokens are valid, in seconds; 0: 300
	Scopes       []string       `json:"scopes,omitempty"`       // the scopes of every resource; nil: mcp:read and mcp:write
	Listed       bool           `json:"listed,omitempty"`       // its metadata lists Scopes, too; else it registers no client that names them
	Nonces       bool           `json:"nonces,omitempty"`       // DPoP proofs need a nonce of the provider
	Opaque       bool           `json:"opaque,omitempty"`       // access tokens are not signed: they must be introspected
	Registration *bool          `json:"registration,omitempty"` // clients may register themselves; nil: yes
	Device       *bool          `json:"device,omitempty"`       // there are device codes; nil: yes
	Clients      []Client       `json:"clients,omitempty"`      // the clients that are registered by hand
	Documents    map[string]any `json:"documents,omitempty"`    // metadata documents of clients by their URL; nil: the provider does not understand such URLs
}

// A Client is the metadata of a client that was registered by hand, by the names of RFC 7591.
type Client map[string]any

// MachineClient returns a client for the grant client_credentials with a secret.
func MachineClient(id, secret string) Client {
	return Client{"client_id": id, "client_secret": secret, "grant_types": []string{"client_credentials"},
		"redirect_uris": []string{}, "response_types": []string{}, "token_endpoint_auth_method": "client_secret_basic"}
}

// A Provider is a running identity provider. It may be used concurrently.
type Provider struct {
	t   testing.TB // the test that the provider is for
	URL string     // its issuer
}

// Start runs a provider until the test ends.
func Start(t testing.TB, o Options) *Provider {
	t.Helper()
	peers.Version(t, "oidc-provider") // or it says what to install
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(peers.Root(), "tests", "interop", "idp", "provider.mjs")
	return &Provider{t: t, URL: peers.StartAndListen(t, []string{peers.Node(t), script, string(options)})}
}

// A Grant is a token request that the provider has answered.
type Grant struct {
	At     int64  // when it was answered, in milliseconds since 1970
	Grant  string // its grant_type
	Client string // the id of the client
	Error  string // the code of the error; "": it was granted
}

// Time returns when it was answered.
func (g Grant) Time() time.Time { return time.UnixMilli(g.At) }

// Counts returns how often what has happened: "grant GRANT_TYPE", "error CODE", "authorized", "family
// revoked", "document", and each route with its status, as in "registration 201".
func (p *Provider) Counts() map[string]int {
	p.t.Helper()
	return ask[map[string]int](p, "counts")
}

// Grants returns all token requests in their order.
func (p *Provider) Grants() []Grant {
	p.t.Helper()
	return ask[[]Grant](p, "grants")
}

// Secrets returns every token, code, verifier, secret and proof that it has seen.
func (p *Provider) Secrets() []string {
	p.t.Helper()
	return ask[[]string](p, "secrets")
}

// ask returns what the provider tells at /control/ under the name what. An error fails the test, and the answer is empty.
func ask[T any](p *Provider, what string) (answer T) {
	p.t.Helper()
	resp, err := http.Get(p.URL + "/control/" + what)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", resp.Status)
		} else {
			err = json.NewDecoder(resp.Body).Decode(&answer)
		}
	}
	if err != nil {
		p.t.Errorf("what the provider has counted: %v", err)
	}
	return answer
}

// Want fails the test for each of these counts, by the names that Counts has, that is another one. Others may be anything.
func (p *Provider) Want(want map[string]int) {
	p.t.Helper()
	got := p.Counts()
	for what, n := range want {
		if got[what] != n {
			p.t.Errorf("the provider counts %q %d times, want %d; all: %v", what, got[what], n, got)
		}
	}
}
