package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// discoveryCacheTime is how long metadata is used without asking again. A refused token makes it ask at once.
const discoveryCacheTime = time.Hour

// A discovery is what is known of a server and its authorization server.
type discovery struct {
	Resource           auth.ResourceMetadata `json:"resource"`
	AuthServer         auth.ServerMetadata   `json:"server"`
	DefaultEndpoints   bool                  `json:"assumed,omitempty"` // see auth.ServerMetadata
	OriginIsAuthServer bool                  `json:"origin,omitempty"`  // there is no metadata of the resource: revision 2025-03-26
}

// Bounds of what a server can make somebody do.
const (
	maxRecentSignIns = 5                // in signInWindow
	signInWindow     = 10 * time.Minute // a server that refuses what signing in brings does not get another one
	stepUpWindow     = time.Hour        // an attempt for more rights counts that long
	maxScopes        = 100              // that challenges have named
	discoveryTimeout = time.Minute      // for all metadata together
)

// A metadataFinder finds the metadata of a server and of its authorization server, and keeps them in the store. It may be used
// concurrently.
type metadataFinder struct {
	*credentialBase
	record    *serverRecord
	registrar *registrar
	redirect  redirectTarget

	mu sync.Mutex
	// foundNoEndpointsAt is when a server without metadata was found to have none of the assumed endpoints.
	foundNoEndpointsAt time.Time
}

// discoverForSignIn is discover for a person who signs in: without metadata of the resource, what is stored is a guess, and whoever runs
// the server may have mended that since.
func (f *metadataFinder) discoverForSignIn(ctx context.Context, announcedMetadataURL string) (*discovery, error) {
	stored, err := f.record.storedDiscovery(ctx)
	if err != nil {
		return nil, err
	}
	return f.discover(ctx, announcedMetadataURL, stored != nil && stored.OriginIsAuthServer)
}

// discover returns what is stored, or asks the servers. refetch: it asks in any case. It also asks where the stored one is a guess (OriginIsAuthServer)
// and the server announces metadata. With an error, it returns nil or a discovery of which only Resource may be used.
func (f *metadataFinder) discover(ctx context.Context, announcedMetadataURL string, refetch bool) (*discovery, error) {
	m, err := f.options.Store.Metadata(ctx, f.key)
	if err != nil {
		return nil, err
	}
	cached := parseDiscovery(m)
	refetch = refetch || cached == nil || cached.OriginIsAuthServer && announcedMetadataURL != ""
	if left := m.Expires.Sub(f.now()); !refetch && left > 0 && left <= discoveryCacheTime {
		return cached, nil
	}
	asking, cancel := context.WithTimeout(ctx, discoveryTimeout)
	found, err := f.fetchDiscovery(asking, announcedMetadataURL, cached)
	cancel()
	if err != nil {
		return found, err
	}
	if found.DefaultEndpoints && cached != nil && !cached.OriginIsAuthServer {
		return cached, nil // the metadata is away for now: nobody said that it has changed
	}
	if err := f.record.storeDiscovery(ctx, found); err != nil {
		f.reportError(err) // it is found again next time
	}
	return found, nil
}

// fetchDiscovery asks the servers. have is what is stored, or nil. It returns as discover does.
func (f *metadataFinder) fetchDiscovery(ctx context.Context, announced string, have *discovery) (*discovery, error) {
	resource, err := f.caller.FetchResourceMetadata(ctx, f.options.Revision, f.serverURL, announced)
	if auth.Is(err, auth.NotFound) {
		server, err := f.caller.FetchOriginServerMetadata(ctx, f.serverURL)
		return &discovery{AuthServer: server, DefaultEndpoints: server.HasDefaultEndpoints, OriginIsAuthServer: true}, err
	}
	if err != nil {
		return nil, err
	}
	var none error
	for _, issuer := range f.orderIssuers(resource.AuthorizationServers, have) {
		server, err := f.caller.FetchServerMetadata(ctx, f.options.Revision, issuer)
		if err == nil {
			return &discovery{Resource: resource, AuthServer: server}, nil
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

// errNoAuthServer says that nothing shows that somebody could sign in at a server.
var errNoAuthServer = errors.New("the server tells nothing of an authorization server")

// canSignIn reports whether somebody can sign in there. Where there is no metadata at all, s has the endpoints that
// revision 2025-03-26 assumes. A server that only wants a key has none of them. So canSignIn registers the client,
// unless it has before: the endpoints are there if that works.
func (f *metadataFinder) canSignIn(ctx context.Context, s *discovery) bool {
	if !s.DefaultEndpoints || f.options.Machine != nil || f.options.ClientID != "" || f.options.ClientMetadataURL != "" || f.options.NoDynamicRegistration {
		return true
	}
	f.mu.Lock()
	silent := f.foundNoEndpointsAt
	f.mu.Unlock()
	if since := f.now().Sub(silent); !silent.IsZero() && 0 <= since && since < discoveryCacheTime {
		return false
	}
	redirect := f.redirect.uri()
	known, err := f.options.Store.Registrations(ctx, s.AuthServer.Issuer)
	if err == nil && slices.ContainsFunc(known, func(r tokenstore.Registration) bool { return slices.Contains(r.RedirectURIs, redirect) }) {
		return true
	}
	if _, err = f.registrar.clientForSignIn(ctx, s, redirect, nil, false); err != nil && !auth.Is(err, auth.Unavailable) && ctx.Err() == nil {
		f.mu.Lock()
		f.foundNoEndpointsAt = f.now()
		f.mu.Unlock()
	}
	return err == nil
}

// orderIssuers puts the issuer first that this client is known at, if the server still names it, and returns the first four.
func (f *metadataFinder) orderIssuers(issuers []string, have *discovery) []string {
	first := f.options.ClientIssuer
	if first == "" && have != nil {
		first = have.AuthServer.Issuer
	}
	if i := slices.Index(issuers, first); i > 0 {
		issuers = append([]string{first}, slices.Delete(slices.Clone(issuers), i, i+1)...)
	}
	return issuers[:min(len(issuers), 4)]
}

// hasIssuer reports whether the server still works with an issuer.
func (s *discovery) hasIssuer(issuer string) bool {
	return s.AuthServer.Issuer == issuer || slices.Contains(s.Resource.AuthorizationServers, issuer)
}
