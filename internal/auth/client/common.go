package client

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A credentialBase is what all parts of a Credential share: whose it is, and how it is got. It does not change.
type credentialBase struct {
	options   Options
	key       tokenstore.Key
	serverURL string // where its metadata is looked for
	origin    origin
	caller    *auth.EndpointCaller
	random    func() float64 // for jitter
}

// now is the wall clock.
func (c *credentialBase) now() time.Time { return c.options.Now().Round(0).UTC() }

// reportError tells of an error that no caller gets.
func (c *credentialBase) reportError(err error) {
	if c.options.OnError != nil && err != nil {
		c.options.OnError(err)
	}
}

// signInRequired returns the error with what another process has announced of its sign-in.
func (c *credentialBase) signInRequired(reason string) *SignInRequired {
	r := &SignInRequired{Reason: reason}
	if login, pending, err := c.options.Store.PendingLogin(c.key); err == nil && pending {
		r.URL, r.UserCode, r.Expires = login.SignInURL, login.UserCode, login.Expires
	}
	return r
}

// resourceParam returns what is sent as "resource": what was published, unchanged.
func (c *credentialBase) resourceParam(s *discovery) string {
	switch {
	case c.options.NoResource:
		return ""
	case c.options.Resource != "":
		return c.options.Resource
	}
	return s.Resource.Resource
}

// offlineAccess is the scope that asks for a refresh token.
const offlineAccess = "offline_access"

// scopesToRequest returns what is asked for: what challenges have named, else what the server lists, else nothing. What
// the user asks for comes in the place of the list. With offline, offline_access is added where it is offered.
func (c *credentialBase) scopesToRequest(s *discovery, w serverDemands, offline bool) []string {
	all := w.Scopes
	switch {
	case len(c.options.Scopes) > 0:
		all = auth.UnionScope(c.options.Scopes, w.Scopes)
	case len(all) == 0:
		all = s.Resource.ScopesSupported
	}
	if offline && len(all) > 0 && slices.Contains(s.AuthServer.Scopes, offlineAccess) {
		all = auth.UnionScope(all, []string{offlineAccess})
	}
	return all
}

// needsDPoP reports whether tokens are to be bound to a key.
func (c *credentialBase) needsDPoP(s *discovery, w serverDemands) bool {
	switch c.options.DPoP {
	case DPoPOff:
		return false
	case DPoPRequire:
		return true
	}
	return s.Resource.DPoPRequired || w.OnlyAcceptsDPoP && slices.Contains(s.AuthServer.DPoPAlgs, "ES256")
}

// newStoredCredential makes a credential without tokens. A key of proofs is kept.
func (c *credentialBase) newStoredCredential(s *discovery, w serverDemands, old tokenstore.Credential, scopes []string) (tokenstore.Credential, error) {
	next := tokenstore.Credential{
		Server: c.options.Server, Profile: c.options.Profile, Issuer: s.AuthServer.Issuer, TokenEndpoint: s.AuthServer.TokenEndpoint,
		RevocationEndpoint: s.AuthServer.RevocationEndpoint, Resource: c.resourceParam(s), RequestedScopes: scopes,
	}
	if !c.needsDPoP(s, w) {
		return next, nil
	}
	if next.DPoPKey = old.DPoPKey; !next.DPoPKey.IsZero() {
		return next, nil
	}
	var err error
	next.DPoPKey, err = newProofKey()
	return next, err
}
