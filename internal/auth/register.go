package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// ClientMetadata is what a client says of itself to be registered (RFC 7591, 2).
type ClientMetadata struct {
	Name            string   `json:"client_name,omitempty"`                // the client's name, shown to the person who agrees
	RedirectURIs    []string `json:"redirect_uris,omitempty"`              // where its browsers come back to
	GrantTypes      []string `json:"grant_types,omitempty"`                // the grant_type values that it will use
	ResponseTypes   []string `json:"response_types,omitempty"`             // the response types that it will use: "code" ...
	AuthMethod      string   `json:"token_endpoint_auth_method,omitempty"` // how the client wants to authenticate at the token endpoint (ClientSecretBasic ...)
	ApplicationType string   `json:"application_type,omitempty"`           // "native" with a redirect to loopback; OpenID Connect takes "web" otherwise
	Scope           string   `json:"scope,omitempty"`                      // the scopes that it may ask for, separated by spaces
}

// A Registration is a client that a server knows (RFC 7591, 3.2.1). It belongs to Issuer, and to
// the redirect URIs it was made with.
type Registration struct {
	Issuer          string    // the issuer that has registered the client
	Client          Client    // the client; its AuthMethod is the one that the server has assigned, or else the one asked for, unless that is ClientAuthNone and a secret came; "": the server's metadata decides
	RedirectURIs    []string  // the redirect URIs that the server has registered
	IssuedAt        time.Time // when the client was registered, as the server says, or else by our clock
	SecretExpiresAt time.Time // when Client.Secret ends; zero: never, or there is no secret
	ManagementURL   string    // where the registration can be read and deleted (RFC 7592); "": nowhere
	ManagementToken string    // the access token for ManagementURL: a secret
}

// OperationRegister is the Operation of errors of registering a client, and of choosing how it gets its id (ChooseSource).
const OperationRegister = "client registration"

// Register registers a client (RFC 7591, 3). initialAccessToken authorizes the request; "": none is sent. Mismatch:
// the server did not take a redirect URI, or registered others. Unsupported: it has no such endpoint.
func (c *EndpointCaller) Register(ctx context.Context, server ServerMetadata, m ClientMetadata, initialAccessToken string) (Registration, error) {
	const doing = OperationRegister
	if server.RegistrationEndpoint == "" {
		return Registration{}, &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server registers no clients"}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return Registration{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if initialAccessToken != "" {
		header.Set("Authorization", "Bearer "+initialAccessToken)
	}
	a, err := c.post(ctx, doing, server.RegistrationEndpoint, header, string(text))
	if err != nil {
		return Registration{}, err
	}
	help := "register a client by hand there with the redirect URI " + strings.Join(m.RedirectURIs, ", ") + ", and give its id with --client-id"
	f, err := c.parseResponse(doing, server.RegistrationEndpoint, a, false, []string{initialAccessToken})
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Kind != Unavailable {
			e.Advice = help
		}
		return Registration{}, e
	}
	reg, err := c.parseRegistration(f, server, m)
	if err != nil {
		kind := Invalid
		if errors.Is(err, errOtherRedirectURIs) {
			kind = Mismatch
		}
		return Registration{}, &Error{Kind: kind, Operation: doing, URL: redactURL(server.RegistrationEndpoint), Status: a.status, Problem: "the answer cannot be used", Err: err, Advice: help}
	}
	return reg, nil
}

// errOtherRedirectURIs says that the server has registered other redirect URIs than were asked for, so that
// the registration cannot be used.
var errOtherRedirectURIs = errors.New("the server registered other redirect URIs than were asked for")

// parseRegistration reads the answer f to the registration of m. What the server has registered may differ
// from m; errOtherRedirectURIs: so much that it cannot be used.
func (c *EndpointCaller) parseRegistration(f strictjson.Fields, server ServerMetadata, m ClientMetadata) (Registration, error) {
	r := strictjson.NewReader(f)
	reg := Registration{
		Issuer:        server.Issuer,
		Client:        Client{ID: r.Text("client_id"), Secret: r.Text("client_secret"), AuthMethod: r.Text("token_endpoint_auth_method")},
		RedirectURIs:  r.TextArray("redirect_uris"),
		ManagementURL: r.Text("registration_client_uri"), ManagementToken: r.Text("registration_access_token"),
		IssuedAt: c.now(),
	}
	if at := r.NumericDate("client_id_issued_at"); at.Unix() > 0 {
		reg.IssuedAt = at
	}
	if at := r.NumericDate("client_secret_expires_at"); at.Unix() > 0 && reg.Client.Secret != "" {
		reg.SecretExpiresAt = at
	}
	if r.Err != nil {
		return reg, r.Err
	}
	if reg.Client.ID == "" {
		return reg, errors.New(`"client_id" is missing`)
	}
	if len(reg.RedirectURIs) == 0 {
		reg.RedirectURIs = m.RedirectURIs
	}
	for _, uri := range m.RedirectURIs {
		if !slices.Contains(reg.RedirectURIs, uri) {
			return reg, errOtherRedirectURIs
		}
	}
	if reg.Client.AuthMethod == "" && (m.AuthMethod != ClientAuthNone || reg.Client.Secret == "") {
		reg.Client.AuthMethod = m.AuthMethod
	}
	if reg.Client.AuthMethod == "" && slices.Equal(server.AuthMethods, []string{ClientAuthNone}) {
		reg.Client.AuthMethod = ClientAuthNone // a server that takes no secret may issue one all the same
	}
	if _, err := reg.Client.chooseAuthMethod(server); err != nil {
		return reg, err
	}
	if reg.ManagementURL != "" && c.checkURL(reg.ManagementURL) != nil {
		reg.ManagementURL, reg.ManagementToken = "", "" // what cannot be used is not kept; the client works without
	}
	return reg, nil
}

// A ClientIDSource is how a client gets its id from a server.
type ClientIDSource int

// The ways in which a client gets its id, the preferred one first (revision 2025-11-25 and later).
const (
	PreRegistered       ClientIDSource = iota // somebody has registered the client by hand, and gave us its id
	MetadataDocument                          // the client's id is the address of its metadata document
	DynamicRegistration                       // the client gets its id by registering itself at the server (RFC 7591)
)

// ClientIDOptions says in which ways a client can get an id.
type ClientIDOptions struct {
	ClientID              string // a client id that somebody has registered by hand; "": none
	Issuer                string // the authorization server at which ClientID was registered, and the only one at which it is used; "": nobody has said, so it is used at any
	MetadataURL           string // address of the client's metadata document; "": none
	NoDynamicRegistration bool   // the client may not register itself
	RedirectURI           string // what a client that is registered by hand needs; only for the error's text
}

// ChooseSource returns how the client gets its id at a server (the specification's order of client
// registration). If there is no way, the error says what to register, and where. Mismatch: ClientID was
// registered at another server.
func (i ClientIDOptions) ChooseSource(server ServerMetadata) (ClientIDSource, error) {
	const doing = OperationRegister
	switch {
	case i.ClientID != "" && i.Issuer != "" && i.Issuer != server.Issuer:
		return 0, &Error{Kind: Mismatch, Operation: doing, URL: redactURL(server.Issuer),
			Problem: fmt.Sprintf("the client id was registered at %.200q, and the server now uses another authorization server", i.Issuer),
			Advice:  "register a client there, or leave out --client-id"}
	case i.ClientID != "":
		return PreRegistered, nil
	case i.MetadataURL != "" && server.SupportsClientDocuments:
		if err := CheckClientDocumentURL(i.MetadataURL); err != nil {
			return 0, &Error{Kind: Invalid, Operation: doing, URL: redactURL(i.MetadataURL), Problem: "the address of the client's metadata document cannot be its id", Err: err}
		}
		return MetadataDocument, nil
	case server.RegistrationEndpoint != "" && !i.NoDynamicRegistration:
		return DynamicRegistration, nil
	}
	do := "register a client there"
	if i.RedirectURI != "" {
		do += " with the redirect URI " + i.RedirectURI
	}
	do += ", and give its id with --client-id"
	if server.SupportsClientDocuments {
		do += "; or give the https address of a client id metadata document with --client-metadata-url"
	}
	return 0, &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server does not let this client register itself", Advice: do}
}

// CheckClientDocumentURL returns why an address cannot be that of a client id metadata document, which is the
// client's id: it must be https, with a path, without dot segments, fragment and user name
// (draft-ietf-oauth-client-id-metadata-document, 3).
func CheckClientDocumentURL(addr string) error {
	u, err := url.Parse(addr)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return errors.New("it is not an https URL")
	case u.User != nil || strings.Contains(addr, "#"):
		return errors.New("it contains a user name or a fragment")
	case u.Path == "" || u.Path == "/":
		return errors.New("it has no path")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return errors.New("its path has dot segments")
		}
	}
	return nil
}
