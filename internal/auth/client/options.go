package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// DPoPMode says whether tokens are bound to a key (RFC 9449).
type DPoPMode int

// The values of DPoPMode.
const (
	DPoPAuto    DPoPMode = iota // tokens are bound to a key where the server asks for it
	DPoPRequire                 // tokens are always bound to a key: one that is not is refused
	DPoPOff                     // tokens are never bound to a key
)

// Options say whose credential it is, and how it is got. They may not be changed once they are in use.
type Options struct {
	Store    *tokenstore.Store // where the credential is stored; required
	Server   string            // URL of the MCP server, http, https, ws or wss: required
	Key      tokenstore.Key    // the credential's name in the store, for callers that have it from there; "": made of other Options
	Profile  string            // tells several accounts at one server apart; "": the usual one
	Revision auth.Revision     // the revision of MCP by whose rules metadata is looked for; "": the newest

	// HTTPClient makes the requests for metadata, registration and tokens: its Transport has proxies,
	// certificates and the rules for addresses. nil: http.DefaultClient.
	HTTPClient *http.Client
	Now        func() time.Time // the clock, of which only the wall clock is used, so that the time counts in which a laptop sleeps; nil: time.Now

	Resource      string            // the "resource" parameter in the place of what the server publishes; "": what the server publishes
	NoResource    bool              // no "resource" parameter is sent
	Scopes        []string          // the scopes to ask for, with those that challenges name; nil: only the latter, or else those that the server lists
	ExtraParams   []auth.Param      // parameters added to the authorization request
	IssuerAliases map[string]string // by an issuer as it is announced: the issuer that its metadata may name instead
	DPoP          DPoPMode          // whether tokens are bound to a key

	ClientID              string             // a client id that somebody has registered by hand; "": none
	ClientIssuer          string             // the issuer at which ClientID was registered, the only one at which it is used; "": nobody said, it is used at any
	ClientAuth            ClientAuthFunc     // the secret or key of ClientID or ClientMetadataURL, called at each use; nil: there is none
	ClientMetadataURL     string             // address of the client's metadata document; "": none
	NoDynamicRegistration bool               // the client may not register itself
	RedirectHost          string             // the host that browsers come back to: "127.0.0.1" (also ""), or "localhost" for servers that ask for it
	RedirectPort          int                // the port that browsers come back to; 0: one that is computed of the credential's tokenstore.Key, or one of the next if that is taken
	Machine               MachineTokenSource // signs in without a person; nil: a person does
	SignIn                SignInFunc         // called when a person must sign in; nil: a SignInRequired error says so
	SignInWait            time.Duration      // bounds what a request waits until somebody has signed in, metadata and registration included; less than 10 s counts as 10 s, 0: nothing does
	OnError               func(error)        // called with errors that no call returns, such as that of storing a renewed token; may be called concurrently; nil: nobody is told
}

// A SignInFunc gets a person to sign in, or finds out where. It returns nil once a new credential is stored: the request goes on. A *SignInRequired that it
// returns goes to whoever made the request. It may wait as long as ctx, whose cause is ErrSignInTimeout when Options.SignInWait is over or the
// person has declined; several requests may call it at the same time.
type SignInFunc func(ctx context.Context, c *Credential, need SignInRequired) error

// A ClientAuthFunc returns the secret of a client that somebody has registered, or its key (private_key_jwt), as it is now. If that cannot be found out it
// returns what they were before, and an error, of which OnError is told. It may be called concurrently.
type ClientAuthFunc func() (secret tokenstore.Secret, key *auth.AssertionSigner, err error)

// A MachineTokenSource gets tokens without a person. The type decides by which grant.
type MachineTokenSource interface {
	// requestToken asks the authorization server m.server for a token.
	requestToken(ctx context.Context, m machineTokenRequest) (auth.Token, error)
	// identity is a part of the credential's key in the store: it differs from that of other sources.
	identity() string
}

// A machineTokenRequest has what a MachineTokenSource needs to ask for one token.
type machineTokenRequest struct {
	caller   *auth.EndpointCaller // sends the request
	server   auth.ServerMetadata  // the authorization server
	client   auth.Client          // who we are to the authorization server
	resource string               // what the token is for; "": not sent
	scopes   []string             // the scopes that are asked for
	prover   *auth.Prover         // binds the token to its key; nil: it need not be bound
}

// New returns the Credential of these options. It makes no request and reads no file.
func New(o Options) (*Credential, error) {
	if o.Store == nil {
		return nil, fmt.Errorf("a credential needs a store")
	}
	key, err := o.key()
	if err != nil {
		return nil, err
	}
	server, err := toHTTPURL(o.Server)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	base := &credentialBase{options: o, key: key, serverURL: server, origin: originOf(server), random: rand.Float64}
	base.caller = &auth.EndpointCaller{HTTP: o.HTTPClient, Now: base.now, IssuerAliases: o.IssuerAliases, Timeout: requestTimeout}
	if o.Revision != "" && o.Revision < "2025-06-18" {
		base.caller.ProtocolVersion = string(o.Revision)
	}
	return newCredential(base), nil
}

// key returns the name under which the credential is stored: Key, or else one made of the server and of what tells credentials apart.
func (o Options) key() (tokenstore.Key, error) {
	if o.Key != "" {
		return tokenstore.ParseKey(string(o.Key))
	}
	id := tokenstore.Identity{Server: o.Server, Profile: o.Profile, Resource: o.Resource, Params: map[string][]string{}}
	if o.NoResource {
		id.Resource = "off"
	}
	switch {
	case o.ClientID != "":
		id.ClientID = "id " + o.ClientID
	case o.ClientMetadataURL != "":
		id.ClientID = "document " + o.ClientMetadataURL
	}
	if o.Machine != nil {
		id.ClientID += " " + o.Machine.identity()
	}
	for _, p := range o.ExtraParams {
		id.Params[p.Name] = append(id.Params[p.Name], p.Value)
	}
	return id.Key()
}

// toHTTPURL returns a server's URL for HTTP requests, such as for its metadata: with http for ws, https for wss, otherwise unchanged. The error is CanonicalURL's.
func toHTTPURL(server string) (string, error) {
	if _, err := tokenstore.CanonicalURL(server); err != nil {
		return "", err
	}
	scheme, rest, _ := strings.Cut(server, ":")
	switch strings.ToLower(scheme) {
	case "ws":
		return "http:" + rest, nil
	case "wss":
		return "https:" + rest, nil
	}
	return server, nil
}

// An origin is the scheme, host and port of a URL; those of WebSocket count as those of HTTP.
type origin struct {
	scheme string // "http" or "https", also of a WebSocket
	host   string // the host in lower case, with its port unless that is the scheme's usual one
}

// originOf returns the origin of an address; the zero origin: it is no URL.
func originOf(addr string) origin {
	u, err := url.Parse(addr)
	if err != nil {
		return origin{}
	}
	return originOfURL(u)
}

// originOfURL returns the origin of a URL.
func originOfURL(u *url.URL) origin {
	o := origin{u.Scheme, u.Host}
	switch o.scheme {
	case "ws":
		o.scheme = "http"
	case "wss":
		o.scheme = "https"
	}
	o.host = strings.ToLower(o.host)
	switch {
	case o.scheme == "https":
		o.host = strings.TrimSuffix(o.host, ":443")
	case o.scheme == "http":
		o.host = strings.TrimSuffix(o.host, ":80")
	}
	return o
}

// loginFlags returns the flags of "mcp-bridge login" that tell this credential from others of its server, quoted for a shell.
func (o *Options) loginFlags() (flags []string) {
	for _, f := range [][2]string{{"--profile", o.Profile}, {"--client-id", o.ClientID}} {
		if f[1] != "" {
			flags = append(flags, f[0], printable.ShellCommand(f[1]))
		}
	}
	return flags
}
