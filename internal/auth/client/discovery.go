package client

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// discoveryCacheTime is how long metadata is used without asking again. A refused token makes it ask at once.
const discoveryCacheTime = time.Hour

// A discovery is what is known of a server and its authorization server.
type discovery struct {
	Resource         auth.ResourceMetadata `json:"resource"`
	Server           auth.ServerMetadata   `json:"server"`
	DefaultEndpoints bool                  `json:"assumed,omitempty"` // see auth.ServerMetadata
	OriginIsServer   bool                  `json:"origin,omitempty"`  // there is no metadata of the resource: revision 2025-03-26
}

// serverDemands is what the server's challenges have asked for. It is remembered over processes.
type serverDemands struct {
	MetadataURL string         `json:"announced,omitempty"` // address of the resource's metadata
	Scopes      []string       `json:"scopes,omitempty"`    // all that challenges have named
	DPoP        bool           `json:"dpop,omitempty"`      // it takes bound tokens only
	StepUp      bool           `json:"stepUp,omitempty"`    // the next sign-in is for more scopes
	StepUps     map[string]int `json:"attempts,omitempty"`  // how often somebody signed in for these scopes after a 403
	SignIns     []time.Time    `json:"signed,omitempty"`    // when somebody signed in, the last times
	Proven      bool           `json:"proven,omitempty"`    // the server has taken a token of the last sign-in
}

// Bounds of what a server can make somebody do.
const (
	maxSignIns       = 5                // in signInWindow
	signInWindow     = 10 * time.Minute // a server that refuses what signing in brings does not get another one
	stepUpWindow     = time.Hour        // an attempt for more rights counts that long
	maxScopes        = 100              // that challenges have named
	discoveryTimeout = time.Minute      // for all metadata together
)

// recentSignIns returns how many sign-ins there were in the time before now.
func (w serverDemands) recentSignIns(now time.Time, within time.Duration) (n int) {
	for _, at := range w.SignIns {
		if age := now.Sub(at); age >= 0 && age < within {
			n++
		}
	}
	return n
}

// offlineAccess is the scope that asks for a refresh token.
const offlineAccess = "offline_access"

// The names of the stored documents.
const (
	discoveryDocument = "site"
	demandsDocument   = "wants"
)

// storedDiscovery returns the discovery as it is stored, however old; nil: there is none.
func (c *Credential) storedDiscovery(ctx context.Context) (*discovery, error) {
	m, err := c.o.Store.Metadata(ctx, c.key)
	if err != nil {
		return nil, err
	}
	return parseDiscovery(m), nil
}

// parseDiscovery reads a stored discovery. One of another version is as good as none.
func parseDiscovery(m tokenstore.Metadata) *discovery {
	s := &discovery{}
	if m.Documents[discoveryDocument] == nil || json.Unmarshal(m.Documents[discoveryDocument], s) != nil {
		return nil
	}
	s.Server.DefaultEndpoints = s.DefaultEndpoints
	return s
}

// storeDocument changes one stored document. What another process stores of the same server at the same
// moment may be lost: it would be asked for again.
func (c *Credential) storeDocument(ctx context.Context, name string, document any, expires time.Time) error {
	m, err := c.o.Store.Metadata(ctx, c.key)
	if err != nil {
		return err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	m.Documents = cloneMap(m.Documents)
	m.Documents[name] = text
	if !expires.IsZero() {
		m.Expires = expires
	}
	return c.o.Store.SaveMetadata(ctx, c.key, m)
}

// storedDemands returns what challenges have asked for.
func (c *Credential) storedDemands(ctx context.Context) (serverDemands, error) {
	m, err := c.o.Store.Metadata(ctx, c.key)
	w := serverDemands{}
	if err == nil && m.Documents[demandsDocument] != nil && json.Unmarshal(m.Documents[demandsDocument], &w) != nil {
		w = serverDemands{}
	}
	return w, err
}

// discover returns the discovery. fresh: what is stored is not good enough. With an error, what it returns is none; it says only
// whether there is metadata of the resource.
func (c *Credential) discover(ctx context.Context, announced string, fresh bool) (*discovery, error) {
	m, err := c.o.Store.Metadata(ctx, c.key)
	if err != nil {
		return nil, err
	}
	have := parseDiscovery(m)
	if left := m.Expires.Sub(c.now()); have != nil && !fresh && left > 0 && left <= discoveryCacheTime {
		return have, nil
	}
	asking, cancel := context.WithTimeout(ctx, discoveryTimeout)
	found, err := c.fetchDiscovery(asking, announced, have)
	cancel()
	if err != nil {
		return found, err
	}
	if found.DefaultEndpoints && have != nil && !have.OriginIsServer {
		return have, nil // the metadata is away for now: nobody said that it has changed
	}
	if err := c.storeDocument(ctx, discoveryDocument, found, c.now().Add(discoveryCacheTime)); err != nil {
		c.reportError(err) // it is found again next time
	}
	return found, nil
}

// fetchDiscovery asks the servers.
func (c *Credential) fetchDiscovery(ctx context.Context, announced string, have *discovery) (*discovery, error) {
	resource, err := c.caller.ResourceMetadata(ctx, c.o.Revision, c.server, announced)
	if auth.Is(err, auth.NotFound) {
		server, err := c.caller.OriginServer(ctx, c.server)
		return &discovery{Server: server, DefaultEndpoints: server.DefaultEndpoints, OriginIsServer: true}, err
	}
	if err != nil {
		return nil, err
	}
	var none error
	for _, issuer := range c.orderIssuers(resource.AuthorizationServers, have) {
		server, err := c.caller.ServerMetadata(ctx, c.o.Revision, issuer)
		if err == nil {
			return &discovery{Resource: resource, Server: server}, nil
		}
		if none == nil {
			none = err
		}
		if !auth.Is(err, auth.NotFound) {
			break
		}
	}
	return &discovery{Resource: resource}, none
}

// errNoSignIn says that nothing shows that somebody could sign in at a server.
var errNoSignIn = errors.New("the server tells nothing of an authorization server")

// canSignIn reports whether somebody can sign in there. Where there is no metadata at all, the endpoints are
// those that revision 2025-03-26 assumes, and a server that only wants a key has none of them: they are
// there if the client can register itself.
func (c *Credential) canSignIn(ctx context.Context, s *discovery) bool {
	if !s.DefaultEndpoints || c.o.Machine != nil || c.o.ClientID != "" || c.o.ClientMetadataURL != "" || c.o.NotDynamic {
		return true
	}
	c.mu.Lock()
	silent := c.foundNoEndpointsAt
	c.mu.Unlock()
	if since := c.now().Sub(silent); !silent.IsZero() && 0 <= since && since < discoveryCacheTime {
		return false
	}
	redirect := c.redirectURI(c.redirectPort())
	known, err := c.o.Store.Registrations(ctx, s.Server.Issuer)
	if err == nil && slices.ContainsFunc(known, func(r tokenstore.Registration) bool { return slices.Contains(r.RedirectURIs, redirect) }) {
		return true
	}
	if _, err = c.clientForSignIn(ctx, s, redirect, nil, false); err != nil && !auth.Is(err, auth.Unavailable) && ctx.Err() == nil {
		c.mu.Lock()
		c.foundNoEndpointsAt = c.now()
		c.mu.Unlock()
	}
	return err == nil
}

// orderIssuers puts the issuer first that this client is known at, if the server still names it.
func (c *Credential) orderIssuers(issuers []string, have *discovery) []string {
	first := c.o.ClientIssuer
	if first == "" && have != nil {
		first = have.Server.Issuer
	}
	if i := slices.Index(issuers, first); i > 0 {
		issuers = append([]string{first}, slices.Delete(slices.Clone(issuers), i, i+1)...)
	}
	return issuers[:min(len(issuers), 4)]
}

// hasIssuer reports whether the server still works with an issuer.
func (s *discovery) hasIssuer(issuer string) bool {
	return s.Server.Issuer == issuer || slices.Contains(s.Resource.AuthorizationServers, issuer)
}

// resourceParam returns what is sent as "resource": what was published, unchanged.
func (c *Credential) resourceParam(s *discovery) string {
	switch {
	case c.o.NoResource:
		return ""
	case c.o.Resource != "":
		return c.o.Resource
	}
	return s.Resource.Resource
}

// scopesToRequest returns what is asked for: what challenges have named, else what the server lists, else nothing. What
// the user asks for comes in the place of the list. With offline, offline_access is added where it is offered.
func (c *Credential) scopesToRequest(s *discovery, w serverDemands, offline bool) []string {
	all := w.Scopes
	switch {
	case len(c.o.Scopes) > 0:
		all = auth.UnionScope(c.o.Scopes, w.Scopes)
	case len(all) == 0:
		all = s.Resource.ScopesSupported
	}
	if offline && len(all) > 0 && slices.Contains(s.Server.Scopes, offlineAccess) {
		all = auth.UnionScope(all, []string{offlineAccess})
	}
	return all
}

// needsDPoP reports whether tokens are to be bound to a key.
func (c *Credential) needsDPoP(s *discovery, w serverDemands) bool {
	switch c.o.DPoP {
	case DPoPOff:
		return false
	case DPoPRequire:
		return true
	}
	return s.Resource.DPoPRequired || w.DPoP && slices.Contains(s.Server.DPoPAlgs, "ES256")
}
