package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A routeTable has the endpoints of all resources, with the metadata and challenges that are answered there. It does
// not change.
type routeTable struct {
	resources      []Resource           // the Resources from which it was made
	endpoints      map[string]*endpoint // the endpoints, by their paths without the path of the public URL
	fallback       *endpoint            // the endpoint for every path that has no endpoint
	publicPath     string               // the path of the public URL; "": it has none
	audiences      []string             // the addresses of all endpoints; nil: there is no public URL
	metadataByPath map[string][]byte    // metadata documents, by the path behind metadataPathPrefix at which they are asked for
}

// An endpoint is one address of a resource.
type endpoint struct {
	url              string                   // the address that clients use; "": there is no public URL
	audiences        []string                 // the addresses of all endpoints of its resource: a token must be for one of them
	metadataURL      string                   // address of its metadata; "": it has none
	challengeHeaders [reasonCount][2][]string // values of WWW-Authenticate, by reason and by scheme: 0 Bearer, 1 DPoP; nil for insufficientScope and unavailable
}

// challengeHeader returns the value of WWW-Authenticate for a reason, with the scheme DPoP or Bearer. It must not be
// changed.
func (e *endpoint) challengeHeader(kind denialReason, dpop bool) []string {
	if dpop {
		return e.challengeHeaders[kind][1]
	}
	return e.challengeHeaders[kind][0]
}

// endpointAt returns the endpoint of a request's path, which may have a slash at its end, and the path of the public
// URL in front; fallback if there is none.
func (t *routeTable) endpointAt(path string) *endpoint {
	if e := t.endpoints[path]; e != nil {
		return e
	}
	path = strings.TrimSuffix(path, "/")
	if e := t.endpoints[path]; e != nil {
		return e
	}
	if rest, ok := strings.CutPrefix(path, t.publicPath); ok && t.publicPath != "" && t.endpoints[rest] != nil {
		return t.endpoints[rest]
	}
	return t.fallback
}

// metadataPathPrefix is where metadata is (RFC 9728, 3): before the path of the resource.
const metadataPathPrefix = "/.well-known/oauth-protected-resource"

// newRouteTable returns the routeTable of these Resources (nil: one, the public URL itself), or what is wrong with
// them.
func (p *Protector) newRouteTable(resources []Resource) (*routeTable, error) {
	if len(resources) == 0 {
		resources = []Resource{{Paths: []string{""}, IsOnly: true}}
	}
	t := &routeTable{resources: resources, endpoints: map[string]*endpoint{}, metadataByPath: map[string][]byte{}}
	public, prefix := p.options.PublicURL, ""
	if public != "" {
		u, err := url.Parse(public)
		if err != nil {
			return nil, err
		}
		prefix, t.publicPath = u.EscapedPath(), u.Path
	}
	published := public != "" && len(p.authorizationServers()) > 0
	for _, r := range resources {
		switch {
		case len(r.Paths) == 0:
			return nil, fmt.Errorf("a resource has no path")
		case r.IsOnly && len(resources) > 1:
			return nil, fmt.Errorf("the resource at %.200q is alone, and there are others", r.Paths[0])
		}
		var group []string
		for _, path := range r.Paths {
			group = append(group, public+escapePath(path))
		}
		if public != "" {
			t.audiences = append(t.audiences, group...)
		} else {
			group = nil
		}
		for i, path := range r.Paths {
			if _, twice := t.endpoints[path]; twice || path != "" && path[0] != '/' {
				return nil, fmt.Errorf("path %.200q of a resource: it is there twice, or does not begin with a slash", path)
			}
			e := &endpoint{audiences: group}
			if public != "" {
				e.url = group[i]
			}
			if published {
				place := prefix + escapePath(path)
				e.metadataURL = strings.TrimSuffix(public, prefix) + metadataPathPrefix + place
				doc := p.metadataDocument(e.url)
				t.metadataByPath[place], t.metadataByPath[escapePath(path)] = doc, doc // a proxy may take the prefix out
			}
			p.fillChallengeHeaders(e)
			t.endpoints[path] = e
		}
	}
	t.fallback = new(endpoint) // a token for one of several resources is for no other path
	if only := resources[0]; only.IsOnly {
		first := t.endpoints[only.Paths[0]]
		t.fallback.audiences, t.fallback.metadataURL = first.audiences, first.metadataURL
		if published && t.metadataByPath[""] == nil {
			t.metadataByPath[""] = p.metadataDocument(first.url)
		}
	}
	p.fillChallengeHeaders(t.fallback)
	return t, nil
}

// escapePath returns a path as it stands in a URL, with % escapes.
func escapePath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// fillChallengeHeaders sets challengeHeaders of an endpoint.
func (p *Protector) fillChallengeHeaders(e *endpoint) {
	for kind := range reasonCount {
		if kind == insufficientScope || kind == unavailable {
			continue
		}
		for i, dpop := range []bool{false, true} {
			e.challengeHeaders[kind][i] = []string{p.formatChallenge(e.metadataURL, kind, p.options.RequiredScopes, dpop)}
		}
	}
}

// authorizationServers returns the issuers that clients are told to get tokens from.
func (p *Protector) authorizationServers() (urls []string) {
	for _, i := range p.options.Issuers {
		urls = append(urls, i.URL)
	}
	if in := p.options.Introspection; in != nil && in.Issuer != "" {
		urls = append(urls, in.Issuer)
	}
	return urls
}

// metadataDocument returns the metadata document (RFC 9728, 2) of the endpoint with this address.
func (p *Protector) metadataDocument(addr string) []byte {
	m := auth.ResourceMetadata{
		Resource: addr, AuthorizationServers: p.authorizationServers(), ScopesSupported: p.options.RequiredScopes,
		BearerMethods: []string{"header"}, DPoPRequired: p.options.DPoP == DPoPRequire,
	}
	if p.options.DPoP != DPoPOff {
		m.DPoPAlgs = auth.SignatureAlgorithms()
	}
	doc, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has strings only
	}
	return doc
}

// MetadataHandler returns the handler that serves the metadata of all resources (RFC 9728, 3): each below
// /.well-known/oauth-protected-resource with its path, and that of a Resource with IsOnly also without. It is public,
// for the pages of every origin.
func (p *Protector) MetadataHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("X-Content-Type-Options", "nosniff")
		place, ok := strings.CutPrefix(r.URL.EscapedPath(), metadataPathPrefix)
		doc := p.routes.Load().metadataByPath[place]
		switch {
		case !ok || doc == nil:
			http.Error(w, "there is no such resource", http.StatusNotFound)
		case r.Method == http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version")
			h.Set("Access-Control-Max-Age", "3600")
			w.WriteHeader(http.StatusNoContent)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
		default:
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "public, max-age=300")
			_, _ = w.Write(doc)
		}
	})
}
