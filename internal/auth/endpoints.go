package auth

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// Revoke asks the authorization server to revoke a token, which is not used any more (RFC 7009). hint is
// "refresh_token", "access_token" or "". Unsupported: the server has no such endpoint.
func (c *EndpointCaller) Revoke(ctx context.Context, server ServerMetadata, client Client, token, hint string) error {
	const doing = "revocation"
	if server.RevocationEndpoint == "" {
		return &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server has no revocation endpoint"}
	}
	form := url.Values{"token": {token}}
	if hint != "" {
		form.Set("token_type_hint", hint)
	}
	_, err := c.postForm(ctx, formRequest{operation: doing, addr: server.RevocationEndpoint, server: server, client: client, form: form, allowsEmptyResponse: true})
	return err
}

// Introspect asks the authorization server what a token is worth (RFC 7662, 2). active is false of a
// token that is not valid; its Claims are empty then. The caller checks what a token is for: its
// audience (Claims.IsFor), scopes, binding and end; Claims.Issuer may be "". Unsupported: the server has no
// such endpoint.
func (c *EndpointCaller) Introspect(ctx context.Context, server ServerMetadata, client Client, token string) (claims Claims, active bool, err error) {
	const doing = "introspection"
	if server.IntrospectionEndpoint == "" {
		return Claims{}, false, &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server has no introspection endpoint"}
	}
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}}
	f, err := c.postForm(ctx, formRequest{operation: doing, addr: server.IntrospectionEndpoint, server: server, client: client, form: form})
	if err != nil {
		return Claims{}, false, err
	}
	r := strictjson.NewReader(f)
	active = r.Bool("active")
	if r.Err == nil && !f.Has("active") || r.Err != nil {
		return Claims{}, false, &Error{Kind: Invalid, Operation: doing, URL: redactURL(server.IntrospectionEndpoint), Problem: `the answer has no "active"`}
	}
	if !active {
		return Claims{}, false, nil
	}
	claims, err = readClaims(f)
	if err != nil {
		return Claims{}, false, &Error{Kind: Invalid, Operation: doing, URL: redactURL(server.IntrospectionEndpoint), Problem: "the answer cannot be used", Err: err}
	}
	return claims, true, nil
}

// A DeviceAuthorization is what a person needs to sign in with another device (RFC 8628, 3.2).
type DeviceAuthorization struct {
	DeviceCode              string        // the code for DeviceCodeGrant: a secret; the person does not see it
	UserCode                string        // the code that the person enters at VerificationURI: foreign text
	VerificationURI         string        // the page that the person opens
	VerificationURIComplete string        // the same page with the code in its address; "": none, or not usable
	Expires                 time.Time     // when DeviceCode ends, by our clock
	PollInterval            time.Duration // the shortest wait between two token requests; it is 5 minutes if the server asks for more
}

// Bounds and defaults of RFC 8628, 3.2 and 3.5.
const (
	defaultPollInterval       = 5 * time.Second  // how long to wait between two token requests where the server does not say (RFC 8628, 3.5)
	maxPollInterval           = 5 * time.Minute  // the longest wait between two token requests for a device code, also if the server asks for a longer one
	defaultDeviceCodeLifetime = 10 * time.Minute // how long a device code lasts where the server does not say
)

// AuthorizeDevice asks the authorization server for a device code, and for the code and the page that the
// person is shown (RFC 8628, 3.1). resource is not sent if it is "", scopes if there are none. Unsupported:
// the server has no such endpoint.
func (c *EndpointCaller) AuthorizeDevice(ctx context.Context, server ServerMetadata, client Client, resource string, scopes []string) (DeviceAuthorization, error) {
	const doing = "device authorization"
	invalid := func(what string, err error) (DeviceAuthorization, error) {
		return DeviceAuthorization{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(server.DeviceAuthorizationEndpoint), Problem: what, Err: err}
	}
	if server.DeviceAuthorizationEndpoint == "" {
		return DeviceAuthorization{}, &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server does not offer device codes"}
	}
	form := url.Values{"client_id": {client.ID}}
	if resource != "" {
		form.Set("resource", resource)
	}
	if len(scopes) > 0 {
		form.Set("scope", JoinScope(scopes))
	}
	f, err := c.postForm(ctx, formRequest{operation: doing, addr: server.DeviceAuthorizationEndpoint, server: server, client: client, form: form})
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok && e.Advice == "" {
			e.Advice = adviceForPerson[e.Kind]
		}
		return DeviceAuthorization{}, err
	}
	r := strictjson.NewReader(f)
	d := DeviceAuthorization{DeviceCode: r.Text("device_code"), UserCode: r.Text("user_code"), VerificationURI: r.Text("verification_uri"), VerificationURIComplete: r.Text("verification_uri_complete")}
	if d.VerificationURI == "" {
		d.VerificationURI = r.Text("verification_url") // as drafts and Google have it
	}
	if r.Err != nil {
		return invalid("the answer cannot be used", r.Err)
	}
	if d.DeviceCode == "" || d.UserCode == "" || len(d.UserCode) > 100 || strings.ContainsFunc(d.UserCode, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return invalid("the answer has no device code, or no user code that a person could type", nil)
	}
	if err := c.checkURL(d.VerificationURI); err != nil {
		return invalid("the address for the person cannot be used", err)
	}
	if d.VerificationURIComplete != "" && c.checkURL(d.VerificationURIComplete) != nil {
		d.VerificationURIComplete = "" // the other one is enough
	}
	life, interval := f.Seconds("expires_in"), f.Seconds("interval")
	if life == 0 {
		life = defaultDeviceCodeLifetime
	}
	if interval == 0 {
		interval = defaultPollInterval
	}
	d.Expires, d.PollInterval = c.now().Add(life), min(interval, maxPollInterval)
	return d, nil
}
