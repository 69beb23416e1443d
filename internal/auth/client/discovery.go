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

// discoveryCacheTime is how long stored metadata is used without asking again, but for a refused token; and how long a refused registration counts (canSignIn).
const discoveryCacheTime = time.Hour

// A discovery is the metadata of an MCP server and of its authorization server, as it is stored.
type discovery struct {
	Resource           auth.ResourceMetadata `json:"resource"`          // the metadata of the MCP server; zero: it has none
	AuthServer         auth.ServerMetadata   `json:"server"`            // the metadata of the MCP server's authorization server
	DefaultEndpoints   bool                  `json:"assumed,omitempty"` // AuthServer has no metadata, so its endpoints are the default ones of revision 2025-03-26
	OriginIsAuthServer bool                  `json:"origin,omitempty"`  // the MCP server has no metadata, so its origin is taken for its authorization server (revision 2025-03-26)
}

// Bounds of what a server can make somebody do.
const (
	maxRecentSignIns = 5                // with so many sign-ins within signInWindow, nobody is asked to sign in again
	signInWindow     = 10 * time.Minute // how long a sign-in counts as recent (maxRecentSignIns)
	stepUpWindow     = time.Hour        // how long after a sign-in maxStepUps applies, step-ups are counted, and another one may count as useless (wouldSignInBeUseless)
	maxScopes        = 100              // how many scopes the challenges of a server may name, together; with more, its requests fail
	discoveryTimeout = time.Minute      // how long it may take to fetch all metadata: that of the server and of its authorization server, together
)

// A metadataFinder finds the metadata of a server and of its authorization server, and keeps it in the store. It may be used concurrently.
type metadataFinder struct {
	*credentialBase
	record    *serverRecord  // has the stored metadata, and stores what was found
	registrar *registrar     // registers the client, in canSignIn
	redirect  redirectTarget // where browsers come back to

	mu                 sync.Mutex // guards foundNoEndpointsAt
	foundNoEndpointsAt time.Time  // when canSignIn was last refused a registration at the default endpoints of a server without metadata: it has none then; zero: never
}

// discoverForSignIn is discover for a person who signs in: if the stored metadata is a guess (OriginIsAuthServer), it asks again, since whoever runs the server
// may have mended that.
func (f *metadataFinder) discoverForSignIn(ctx context.Context, announcedMetadataURL string) (*discovery, error) {
	stored, err := f.record.storedDiscovery(ctx)
	if err != nil {
		return nil, err
	}
	return f.discover(ctx, announcedMetadataURL, stored != nil && stored.OriginIsAuthServer)
}

// discover returns the stored metadata if it is fresh, or asks the servers. announcedMetadataURL is from a challenge, or "". It asks in any case with refetch,
// or if what is stored is a guess (OriginIsAuthServer) and the server announces metadata. Where no metadata is found any more, what is stored stays. With an
// error, it returns nil or a discovery of which only Resource may be used.
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

// fetchDiscovery asks the servers for their metadata, and stores nothing. announced is from a challenge, or ""; have is what is stored, or nil. With an error,
// it returns nil or a discovery of which only Resource may be used.
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

// errNoAuthServer says that a server answers 401 and nothing shows that somebody could sign in there.
var errNoAuthServer = errors.New("the server tells nothing of an authorization server")

// canSignIn reports whether somebody can sign in at the server of s. It is in doubt only where there is no metadata at all: then it tries to register the
// client at the default endpoints, unless it has within the last hour. A server that only wants a key has none. false also if that cannot be told now.
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

// orderIssuers returns at most four of the issuers that a server names: first the one at which the client is registered, or that was used before.
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

// hasIssuer reports whether the server names this issuer as one that it accepts tokens of.
func (s *discovery) hasIssuer(issuer string) bool {
	return s.AuthServer.Issuer == issuer || slices.Contains(s.Resource.AuthorizationServers, issuer)
}
