package auth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// A Revision is a revision of the Model Context Protocol, "2025-11-25", as far as authorization
// differs. "": the newest.
type Revision string

// usesLegacyDiscovery reports whether the revision is 2025-03-26 or older: the MCP server's origin is its
// authorization server, and nobody announces one.
func (r Revision) usesLegacyDiscovery() bool { return r != "" && r < "2025-06-18" }

// ResourceMetadata says how a resource is protected (RFC 9728, 2). Its JSON is that of the document.
type ResourceMetadata struct {
	Resource             string   `json:"resource"`                                    // the resource's identifier as it was published: what "resource" parameters repeat
	AuthorizationServers []string `json:"authorization_servers,omitempty"`             // the issuers that clients may get tokens from
	ScopesSupported      []string `json:"scopes_supported,omitempty"`                  // the scopes that may be asked for; nil: the document does not say
	BearerMethods        []string `json:"bearer_methods_supported,omitempty"`          // how a Bearer token may be sent: "header" ...
	DPoPAlgs             []string `json:"dpop_signing_alg_values_supported,omitempty"` // the algorithms that DPoP proofs may be signed with
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required,omitempty"` // only tokens that are bound to a DPoP key are accepted
}

// ServerMetadata says what an authorization server offers, and where (RFC 8414, 2; OpenID Connect
// Discovery 1.0, 3). Its JSON is that of the document. Each address in it was checked: https, or
// http to this machine (to any, if EndpointCaller.AllowsPlainHTTP).
type ServerMetadata struct {
	Issuer                      string   `json:"issuer"`                                                   // the issuer, as the document has it: what "iss" of tokens and responses is compared with
	AuthorizationEndpoint       string   `json:"authorization_endpoint,omitempty"`                         // where browsers are sent to sign in; "": nowhere
	TokenEndpoint               string   `json:"token_endpoint,omitempty"`                                 // where tokens are asked for; "": nowhere
	RegistrationEndpoint        string   `json:"registration_endpoint,omitempty"`                          // where clients register themselves (RFC 7591); "": nowhere
	RevocationEndpoint          string   `json:"revocation_endpoint,omitempty"`                            // where tokens are revoked (RFC 7009); "": nowhere
	IntrospectionEndpoint       string   `json:"introspection_endpoint,omitempty"`                         // where resources ask what a token is worth (RFC 7662); "": nowhere
	DeviceAuthorizationEndpoint string   `json:"device_authorization_endpoint,omitempty"`                  // where device codes are asked for (RFC 8628); "": nowhere
	JWKSURI                     string   `json:"jwks_uri,omitempty"`                                       // where its public keys are; "": nowhere
	Scopes                      []string `json:"scopes_supported,omitempty"`                               // the scopes that may be asked for; nil: the document does not say
	AuthMethods                 []string `json:"token_endpoint_auth_methods_supported,omitempty"`          // how clients may authenticate at the token endpoint (ClientSecretBasic ...); nil: it does not say
	CodeChallengeMethods        []string `json:"code_challenge_methods_supported,omitempty"`               // the PKCE challenge methods that the server takes; without "S256" nobody signs in there
	DPoPAlgs                    []string `json:"dpop_signing_alg_values_supported,omitempty"`              // the algorithms that DPoP proofs may be signed with; nil: it does not say
	SendsIssParameter           bool     `json:"authorization_response_iss_parameter_supported,omitempty"` // its authorization responses have "iss" (RFC 9207, 3)
	SupportsClientDocuments     bool     `json:"client_id_metadata_document_supported,omitempty"`          // a client id may be the address of the client's metadata document
	HasDefaultEndpoints         bool     `json:"-"`                                                        // there is no document, and the endpoints are the default ones of revision 2025-03-26
}

// ResourceMetadataURLs returns where the metadata of the MCP server at server may be, in the order in which
// to ask: at announced (from a challenge, or ""), then below /.well-known/oauth-protected-resource with the
// server's path, then without (RFC 9728, 3.1). nil: revision 2025-03-26 knows no such metadata.
func ResourceMetadataURLs(rev Revision, server, announced string) []string {
	if rev.usesLegacyDiscovery() {
		return nil
	}
	var all []string
	if announced != "" {
		all = append(all, announced)
	}
	const name = "/.well-known/oauth-protected-resource"
	origin, path, query := splitURL(server)
	if path != "" && path != "/" || query != "" {
		all = appendUnique(all, origin+name+strings.TrimSuffix(path, "/")+trailingSlash(path)+query)
	}
	return appendUnique(all, origin+name)
}

// trailingSlash returns "/" if a path ends with it, else "". A path that is "/" alone counts as one without:
// RFC 9728 keeps the slash of longer paths only.
func trailingSlash(path string) string {
	if len(path) > 1 && strings.HasSuffix(path, "/") {
		return "/"
	}
	return ""
}

// ServerMetadataURLs returns where the metadata of an authorization server may be, in the order in which to
// ask: RFC 8414, 3.1, then OpenID Connect with the issuer's path behind /.well-known/openid-configuration,
// then with the path in front of that. Revision 2025-03-26 has one place only, RFC 8414 at the origin of
// issuer.
func ServerMetadataURLs(rev Revision, issuer string) []string {
	const oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	origin, path, _ := splitURL(issuer)
	if rev.usesLegacyDiscovery() {
		return []string{origin + oauth}
	}
	path = strings.TrimSuffix(path, "/")
	return appendUnique([]string{origin + oauth + path, origin + openid + path}, origin+path+openid)
}

// appendUnique returns all with s at its end, or all itself if s is in it.
func appendUnique(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// splitURL cuts a URL before its path and before its query ("?" stays with the query), and drops the
// fragment. It changes nothing else. A part that is missing is "".
func splitURL(s string) (origin, path, query string) {
	s, _, _ = strings.Cut(s, "#")
	if i := strings.IndexByte(s, '?'); i >= 0 {
		s, query = s[:i], s[i:]
	}
	start := strings.Index(s, "://")
	if start < 0 {
		return s, "", query
	}
	start += len("://")
	if i := strings.IndexByte(s[start:], '/'); i >= 0 {
		return s[:start+i], s[start+i:], query
	}
	return s, "", query
}

// MetadataCovers reports whether metadata that names resource may be used for the MCP server at the address
// server: both are equal, or resource has the same origin and a path that is a parent of the
// server's, at the border of a segment (RFC 9728, 3.3; the parents are there for metadata at the
// root). A slash at the end of resource is a character like others: "/mcp/" does not cover "/mcp".
func MetadataCovers(resource, server string) bool {
	if resource == server {
		return true
	}
	r, err := url.Parse(resource)
	s, err2 := url.Parse(server)
	if err != nil || err2 != nil || r.Host == "" || r.User != nil || r.Opaque != "" || strings.ContainsAny(resource, "?#") || !isSameOrigin(r, s) {
		return false
	}
	parent, path := r.EscapedPath(), s.EscapedPath()
	for segment := range strings.SplitSeq(strings.ToLower(parent+"/"+path), "/") {
		if dots := strings.ReplaceAll(segment, "%2e", "."); dots == "." || dots == ".." {
			return false
		}
	}
	if parent == path || parent == "" || parent == "/" {
		return true
	}
	if !strings.HasSuffix(parent, "/") {
		parent += "/"
	}
	return strings.HasPrefix(path, parent)
}

// ParseResourceMetadata reads a metadata document (RFC 9728, 3.2). Mismatch: it does not cover the MCP server
// at server (MetadataCovers). Invalid: it cannot be used.
func ParseResourceMetadata(data []byte, server string) (ResourceMetadata, error) {
	const doing = "protected resource metadata"
	f, err := strictjson.ParseObject(data)
	if err != nil {
		return ResourceMetadata{}, &Error{Kind: Invalid, Operation: doing, Problem: "the document cannot be used", Err: err, Advice: adviceTellOperator}
	}
	r := strictjson.NewReader(f)
	m := ResourceMetadata{
		Resource:             r.Text("resource"),
		AuthorizationServers: r.TextArray("authorization_servers"),
		ScopesSupported:      r.TextArray("scopes_supported"),
		BearerMethods:        r.TextArray("bearer_methods_supported"),
		DPoPAlgs:             r.TextArray("dpop_signing_alg_values_supported"),
		DPoPRequired:         r.Bool("dpop_bound_access_tokens_required"),
	}
	switch {
	case r.Err != nil:
		err = r.Err
	case m.Resource == "":
		err = errors.New(`"resource" is missing`)
	case len(m.AuthorizationServers) == 0:
		err = errors.New(`"authorization_servers" is missing or empty`)
	case !MetadataCovers(m.Resource, server):
		return ResourceMetadata{}, &Error{Kind: Mismatch, Operation: doing,
			Problem: fmt.Sprintf("it is about the resource %.200q, which is not the server at %.200q", m.Resource, redactURL(server)),
			Advice:  "use the address that it names, if that is the server you mean"}
	}
	if err != nil {
		return ResourceMetadata{}, &Error{Kind: Invalid, Operation: doing, Problem: "the document cannot be used", Err: err, Advice: adviceTellOperator}
	}
	return m, nil
}

// parseServerMetadata reads a metadata document (RFC 8414, 3.2). Mismatch: its issuer is neither issuer nor
// one of aliases, byte for byte (RFC 8414, 3.3; OpenID Connect Discovery 1.0, 4.3). Invalid: it cannot be
// used.
func (c *EndpointCaller) parseServerMetadata(data []byte, issuer string, aliases ...string) (ServerMetadata, error) {
	const doing = "authorization server metadata"
	invalid := func(err error) (ServerMetadata, error) {
		return ServerMetadata{}, &Error{Kind: Invalid, Operation: doing, Problem: "the document cannot be used", Err: err, Advice: adviceTellOperator}
	}
	f, err := strictjson.ParseObject(data)
	if err != nil {
		return invalid(err)
	}
	r := strictjson.NewReader(f)
	m := ServerMetadata{
		Issuer:                  r.Text("issuer"),
		Scopes:                  r.TextArray("scopes_supported"),
		AuthMethods:             r.TextArray("token_endpoint_auth_methods_supported"),
		CodeChallengeMethods:    r.TextArray("code_challenge_methods_supported"),
		DPoPAlgs:                r.TextArray("dpop_signing_alg_values_supported"),
		SendsIssParameter:       r.Bool("authorization_response_iss_parameter_supported"),
		SupportsClientDocuments: r.Bool("client_id_metadata_document_supported"),
	}
	for name, into := range map[string]*string{
		"authorization_endpoint": &m.AuthorizationEndpoint, "token_endpoint": &m.TokenEndpoint, "jwks_uri": &m.JWKSURI,
		"registration_endpoint": &m.RegistrationEndpoint, "revocation_endpoint": &m.RevocationEndpoint,
		"introspection_endpoint": &m.IntrospectionEndpoint, "device_authorization_endpoint": &m.DeviceAuthorizationEndpoint,
	} {
		*into = r.Text(name)
		if r.Err == nil && *into != "" {
			if err := c.checkURL(*into); err != nil {
				return invalid(fmt.Errorf("%q cannot be used: %w", name, err))
			}
		}
	}
	if r.Err != nil {
		return invalid(r.Err)
	}
	if m.Issuer == "" {
		return invalid(errors.New("it names no issuer"))
	}
	if m.Issuer != issuer && !slices.Contains(aliases, m.Issuer) {
		return ServerMetadata{}, &Error{Kind: Mismatch, Operation: doing, AnnouncedIssuer: m.Issuer,
			Problem: fmt.Sprintf("it is about the issuer %.200q, and was asked for %.200q", m.Issuer, issuer),
			Advice:  fmt.Sprintf("if the operator confirms that both are the same, say so with --issuer-alias %.200s=%.200s", issuer, m.Issuer)}
	}
	return m, nil
}

// checkIssuer returns why an issuer identifier is not allowed (RFC 8414, 2): what checkURL refuses, or a
// query.
func (c *EndpointCaller) checkIssuer(issuer string) error {
	if err := c.checkURL(issuer); err != nil {
		return err
	}
	if strings.Contains(issuer, "?") {
		return errors.New("it contains a query")
	}
	return nil
}

// FetchResourceMetadata asks the MCP server at server for its metadata (RFC 9728, 3). announced is the
// address from its challenge, or "". The first document that is there is used, or its fault is the
// error. NotFound: the server has none, and may be of revision 2025-03-26 (FetchOriginServerMetadata).
// Unavailable: one of the places could not be asked, and no other has a document.
func (c *EndpointCaller) FetchResourceMetadata(ctx context.Context, rev Revision, server, announced string) (ResourceMetadata, error) {
	const doing = "protected resource metadata"
	var m ResourceMetadata
	err := c.parseFirstDocument(ctx, doing, ResourceMetadataURLs(rev, server, announced), func(data []byte) (err error) {
		m, err = ParseResourceMetadata(data, server)
		return err
	})
	return m, err
}

// FetchServerMetadata asks the authorization server of an issuer for its metadata (RFC 8414, 3). The first
// document that is there is used, or its fault is the error. NotFound: the server has none. Unavailable: one
// of the places could not be asked, and no other has a document.
func (c *EndpointCaller) FetchServerMetadata(ctx context.Context, rev Revision, issuer string) (ServerMetadata, error) {
	const doing = "authorization server metadata"
	if err := c.checkIssuer(issuer); err != nil {
		return ServerMetadata{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(issuer), Problem: "the issuer cannot be used", Err: err, Advice: adviceTellOperator}
	}
	var m ServerMetadata
	err := c.parseFirstDocument(ctx, doing, ServerMetadataURLs(rev, issuer), func(data []byte) (err error) {
		m, err = c.parseServerMetadata(data, issuer, c.IssuerAliases[issuer])
		return err
	})
	return m, err
}

// FetchOriginServerMetadata returns the authorization server of an MCP server of revision 2025-03-26, which has
// no protected resource metadata: the origin of its address. Its metadata is asked for at the
// origin; if there is none, the endpoints are /authorize, /token and /register there, and HasDefaultEndpoints
// is true. Nobody has announced an issuer then, so it may be the origin with or without the slash
// at its end: the address of the metadata is that of both.
func (c *EndpointCaller) FetchOriginServerMetadata(ctx context.Context, server string) (ServerMetadata, error) {
	const doing = "authorization server metadata"
	origin, _, _ := splitURL(server)
	if err := c.checkIssuer(origin); err != nil {
		return ServerMetadata{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(server), Problem: "the server's address cannot be used", Err: err}
	}
	var m ServerMetadata
	err := c.parseFirstDocument(ctx, doing, ServerMetadataURLs("2025-03-26", origin), func(data []byte) (err error) {
		m, err = c.parseServerMetadata(data, origin, origin+"/", c.IssuerAliases[origin])
		return err
	})
	if Is(err, NotFound) {
		return ServerMetadata{
			Issuer: origin, AuthorizationEndpoint: origin + "/authorize", TokenEndpoint: origin + "/token", RegistrationEndpoint: origin + "/register",
			CodeChallengeMethods: []string{"S256"}, HasDefaultEndpoints: true,
		}, nil
	}
	return m, err
}

// parseFirstDocument asks for a document at addrs in turn, and gives the first one that is there to parse. It
// returns the error of parse, which gets the document's address if it is an Error. If no document is there, it
// returns the first error of Kind Unavailable, or else one of Kind NotFound. An error of another Kind ends the search, and
// so does the end of ctx. doing is the Operation of the errors.
func (c *EndpointCaller) parseFirstDocument(ctx context.Context, doing string, addrs []string, parse func([]byte) error) error {
	none := &Error{Kind: NotFound, Operation: doing, Problem: "the server has none at " + strings.Join(redactURLs(addrs), ", "), Advice: adviceTellOperator}
	var unavailable error
	for _, addr := range addrs {
		data, err := c.getJSON(ctx, doing, addr)
		switch {
		case err == nil:
			err = parse(data)
			if e, ok := errors.AsType[*Error](err); ok {
				e.URL = redactURL(addr)
			}
			return err
		case Is(err, NotFound):
		case Is(err, Unavailable) && ctx.Err() == nil:
			if unavailable == nil {
				unavailable = err
			}
		default:
			return err
		}
	}
	if unavailable != nil {
		return unavailable
	}
	return none
}

// redactURLs returns the URLs without what may hold a secret (redactURL).
func redactURLs(addrs []string) []string {
	all := make([]string, len(addrs))
	for i, a := range addrs {
		all[i] = redactURL(a)
	}
	return all
}
