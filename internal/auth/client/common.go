package client

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A credentialBase is what all parts of a Credential share: whose it is, and how it is got. It does not change.
type credentialBase struct {
	options   Options              // the Options of New
	key       tokenstore.Key       // the credential's name in the store
	serverURL string               // the MCP server's, as http or https: its metadata is looked for there
	origin    origin               // the origin of serverURL: only requests to it get the token
	caller    *auth.EndpointCaller // asks the server and its authorization server
	random    func() float64       // returns a number from 0 to below 1, by which pauses and renewals differ
}

// now returns the time by the wall clock.
func (c *credentialBase) now() time.Time { return c.options.Now().Round(0).UTC() }

// reportError tells Options.OnError of an error that no caller gets; not of nil.
func (c *credentialBase) reportError(err error) {
	if c.options.OnError != nil && err != nil {
		c.options.OnError(err)
	}
}

// signInRequired returns a SignInRequired with this reason, and with where the person goes if a process signs in already.
func (c *credentialBase) signInRequired(reason string) *SignInRequired {
	r := &SignInRequired{Reason: reason}
	if login, pending, err := c.options.Store.PendingLogin(c.key); err == nil && pending {
		r.URL, r.UserCode, r.Expires = login.SignInURL, login.UserCode, login.Expires
	}
	return r
}

// resourceParam returns the "resource" parameter: Options.Resource, or what the server's metadata names, unchanged; "": it is not sent.
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

// scopesToRequest returns the scopes to ask for: those that challenges have named (w), or else those that the server lists; if Options.Scopes is set, these
// with those of challenges. With offline, offline_access is added to others where the authorization server lists it. nil: none.
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

// needsDPoP reports whether tokens are to be bound to a key: Options.DPoP says so, or with DPoPAuto what the server has published (s) or demanded (w).
func (c *credentialBase) needsDPoP(s *discovery, w serverDemands) bool {
	switch c.options.DPoP {
	case DPoPOff:
		return false
	case DPoPRequire:
		return true
	}
	return s.Resource.DPoPRequired || w.OnlyAcceptsDPoP && slices.Contains(s.AuthServer.DPoPAlgs, "ES256")
}

// newStoredCredential returns a credential without tokens for a sign-in with scopes at the authorization server of s. If needsDPoP (s, w), it has a key for DPoP proofs: that of old, or else a new one.
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
