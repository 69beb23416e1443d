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
	resources []Resource
	endpoints map[string]*endpoint // by path
	fallback  *endpoint            // for every other path
	prefix    string               // the path of the public URL
	audiences []string             // the addresses of all
	documents map[string][]byte    // metadata, by the path that it is asked for at
}

// An endpoint is one address of a resource.
type endpoint struct {
	url       string   // that clients use; "": not known
	audiences []string // the addresses of its resource
	metadata  string   // where its metadata is; "": nowhere
	headers   [countReasons][2][]string
}

// header returns WWW-Authenticate. net/http does not change it.
func (e *endpoint) header(kind reason, dpop bool) []string {
	if dpop {
		return e.headers[kind][1]
	}
	return e.headers[kind][0]
}

// endpoint returns the endpoint at a path, which may have a slash at its end, and the path of the public
// URL in front.
func (t *routeTable) endpoint(path string) *endpoint {
	if e := t.endpoints[path]; e != nil {
		return e
	}
	path = strings.TrimSuffix(path, "/")
	if e := t.endpoints[path]; e != nil {
		return e
	}
	if rest, ok := strings.CutPrefix(path, t.prefix); ok && t.prefix != "" && t.endpoints[rest] != nil {
		return t.endpoints[rest]
	}
	return t.fallback
}

// wellKnown is where metadata is (RFC 9728, 3): before the path of the resource.
const wellKnown = "/.well-known/oauth-protected-resource"

// makeTable makes what depends on the endpoints.
func (p *Protector) makeTable(resources []Resource) (*routeTable, error) {
	if len(resources) == 0 {
		resources = []Resource{{Paths: []string{""}, Alone: true}}
	}
	t := &routeTable{resources: resources, endpoints: map[string]*endpoint{}, documents: map[string][]byte{}}
	public, prefix := p.opts.PublicURL, ""
	if public != "" {
		u, err := url.Parse(public)
		if err != nil {
			return nil, err
		}
		prefix, t.prefix = u.EscapedPath(), u.Path
	}
	published := public != "" && len(p.servers()) > 0
	for _, r := range resources {
		switch {
		case len(r.Paths) == 0:
			return nil, fmt.Errorf("a resource has no path")
		case r.Alone && len(resources) > 1:
			return nil, fmt.Errorf("the resource at %.200q is alone, and there are others", r.Paths[0])
		}
		var group []string
		for _, path := range r.Paths {
			group = append(group, public+escaped(path))
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
				place := prefix + escaped(path)
				e.metadata = strings.TrimSuffix(public, prefix) + wellKnown + place
				doc := p.document(e.url)
				t.documents[place], t.documents[escaped(path)] = doc, doc // a proxy may take the prefix out
			}
			p.fillHeaders(e)
			t.endpoints[path] = e
		}
	}
	t.fallback = new(endpoint) // a token for one of several resources is for no other path
	if only := resources[0]; only.Alone {
		first := t.endpoints[only.Paths[0]]
		t.fallback.audiences, t.fallback.metadata = first.audiences, first.metadata
		if published && t.documents[""] == nil {
			t.documents[""] = p.document(first.url)
		}
	}
	p.fillHeaders(t.fallback)
	return t, nil
}

func escaped(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// fillHeaders makes the challenges of an endpoint.
func (p *Protector) fillHeaders(e *endpoint) {
	for kind := range countReasons {
		if kind == insufficientScope || kind == unavailable {
			continue
		}
		for i, dpop := range []bool{false, true} {
			e.headers[kind][i] = []string{p.challenge(e.metadata, kind, p.opts.Scopes, dpop)}
		}
	}
}

// servers returns the authorization servers that clients get tokens from.
func (p *Protector) servers() (urls []string) {
	for _, i := range p.opts.Issuers {
		urls = append(urls, i.URL)
	}
	if in := p.opts.Introspection; in != nil && in.Issuer != "" {
		urls = append(urls, in.Issuer)
	}
	return urls
}

// document returns the metadata of an endpoint (RFC 9728, 2).
func (p *Protector) document(addr string) []byte {
	m := auth.ResourceMetadata{
		Resource: addr, AuthorizationServers: p.servers(), ScopesSupported: p.opts.Scopes,
		BearerMethods: []string{"header"}, DPoPRequired: p.opts.DPoP == DPoPRequire,
	}
	if p.opts.DPoP != DPoPOff {
		m.DPoPAlgs = auth.SignatureAlgorithms()
	}
	doc, err := json.Marshal(m)
	if err != nil {
		panic(err) // it has strings only
	}
	return doc
}

// IsMetadata reports whether a path is one at which Metadata may have a document.
func IsMetadata(path string) bool {
	rest, ok := strings.CutPrefix(path, wellKnown)
	return ok && (rest == "" || rest[0] == '/')
}

// Metadata returns the handler of the metadata of all resources (RFC 9728, 3): each at the address
// with its path, and a Resource that is Alone at the root too. It is public, for the pages of
// every origin.
func (p *Protector) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("X-Content-Type-Options", "nosniff")
		place, ok := strings.CutPrefix(r.URL.EscapedPath(), wellKnown)
		doc := p.table.Load().documents[place]
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
