package resource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A routeTable has the endpoints of all resources, with what is answered there.
type routeTable struct {
	resources      []Resource
	endpoints      map[string]*endpoint // by path
	fallback       *endpoint            // for every other path
	publicPath     string               // the path of the public URL
	audiences      []string             // the addresses of all endpoints; nil: there is no public URL
	metadataByPath map[string][]byte    // metadata, by the path that it is asked for at
}

// An endpoint is one address of a resource.
type endpoint struct {
	url              string                   // that clients use; "": not known
	audiences        []string                 // the addresses of its resource
	metadataURL      string                   // where its metadata is; "": nowhere
	challengeHeaders [reasonCount][2][]string // by the reason, and by the scheme: 0 Bearer, 1 DPoP
}

// challengeHeader returns WWW-Authenticate. net/http does not change it.
func (e *endpoint) challengeHeader(kind denialReason, dpop bool) []string {
	if dpop {
		return e.challengeHeaders[kind][1]
	}
	return e.challengeHeaders[kind][0]
}

// endpointAt returns the endpoint at a path, which may have a slash at its end, and the path of the public
// URL in front.
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

// newRouteTable makes what depends on the endpoints.
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

func escapePath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// fillChallengeHeaders makes the challenges of an endpoint.
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

// authorizationServers returns the authorization servers that clients get tokens from.
func (p *Protector) authorizationServers() (urls []string) {
	for _, i := range p.options.Issuers {
		urls = append(urls, i.URL)
	}
	if in := p.options.Introspection; in != nil && in.Issuer != "" {
		urls = append(urls, in.Issuer)
	}
	return urls
}

// metadataDocument returns the metadata of an endpoint (RFC 9728, 2).
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

// IsMetadataPath reports whether a path is one at which MetadataHandler may have a document.
func IsMetadataPath(path string) bool {
	rest, ok := strings.CutPrefix(path, metadataPathPrefix)
	return ok && (rest == "" || rest[0] == '/')
}

// MetadataHandler returns the handler of the metadata of all resources (RFC 9728, 3): each at the address
// with its path, and a Resource with IsOnly at the root too. It is public, for the pages of
// every origin.
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
