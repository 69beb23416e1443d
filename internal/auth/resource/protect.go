package resource

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Grant says who the sender of a request is, and what he may do.
type Grant struct {
	// Principal is "oauth:" and a hash over issuer, subject and client of a token, the name of a static
	// key, or the name of a certificate (access.CertificateName). Keys and certificates have the same names where
	// there is no Protector. The name of a key has no colon, so it is never that of a token or a certificate.
	// Sessions, processes and what waits belong to the principal.
	Principal string

	Subject      string    // "sub" of the token; "": it has none
	ClientID     string    // the client that the token was issued to; "": it does not say
	Scopes       []string  // the scopes of the token; nil: it has none, or there is no token (see HasAllScopes)
	HasAllScopes bool      // it is of a static key or a certificate, which have no scopes: they may do everything
	Expires      time.Time // when the token expires; zero: it is not known

	contextValues context.Context // has the values of a request's context that say who its sender is
}

// fillContextValues sets contextValues, for this sender, and returns g.
func (g *Grant) fillContextValues(s access.Sender) *Grant {
	ctx := context.WithValue(context.Background(), grantKey{}, g)
	g.contextValues = s.Context(identity.WithPrincipal(ctx, s.Name))
	return g
}

// A requestContext is the context of a request that was let through. Its values about the sender are made once for each
// Grant.
type requestContext struct {
	context.Context
	grant *Grant // the Grant of the request's sender
}

// Value returns the value for key of what is known about the sender (Grant.contextValues), or else that of the request's
// context.
func (c *requestContext) Value(key any) any {
	if v := c.grant.contextValues.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// grantKey is the key of the Grant in a context.
type grantKey struct{}

// GrantOf returns the Grant of the request whose context ctx is, or made of that; nil: there is none. The Grant is
// shared by requests, and must not be changed.
func GrantOf(ctx context.Context) *Grant {
	g, _ := ctx.Value(grantKey{}).(*Grant)
	return g
}

// Authenticate implements access.Authenticator. It reads nothing of the body. TokenContext of a request
// that it lets through is done 30 to 45 seconds after its token has expired (contextUntil), with
// access.ErrExpired as its cause, or when its static key was removed.
func (p *Protector) Authenticate(h http.Header, r *http.Request) (*http.Request, *access.Refusal) {
	e := p.routes.Load().endpointAt(r.URL.Path)
	g, why := p.identify(r, e)
	if why == nil && !g.HasAllScopes && !p.policy.Load().Covers(g.Scopes, p.options.RequiredScopes) {
		why = &denial{reason: insufficientScope, scopes: p.options.RequiredScopes, err: errors.New("the token lacks a scope that every request needs")}
	}
	if why != nil {
		return r, p.deny(h, r, e, why)
	}
	return r.WithContext(&requestContext{r.Context(), g}), nil
}

// errScopeMissing is the error for a token that lacks a scope which a message needs.
var errScopeMissing = errors.New("the token lacks a scope that the message needs")

// Authorize returns the refusal if the sender of r, which Authenticate has let through, lacks a scope that these
// messages need; nil: he may send them. It sets a challenge on h, for the scopes of all of them.
func (p *Protector) Authorize(h http.Header, r *http.Request, messages ...jsonrpc.Message) *access.Refusal {
	scopes := p.ScopesToDemand(r.Context(), messages...)
	if scopes == nil {
		return nil
	}
	why := &denial{reason: insufficientScope, scopes: scopes, asksForDPoP: usesDPoPScheme(r), err: errScopeMissing}
	return p.deny(h, r, p.routes.Load().endpointAt(r.URL.Path), why)
}

// ScopesToDemand returns Options.RequiredScopes and all the scopes that these messages need, if the Grant in ctx lacks one that
// they need, or ctx has no Grant; nil: it lacks none. It is for transports that do not answer each message with an HTTP status of
// its own (InsufficientScopeReply).
func (p *Protector) ScopesToDemand(ctx context.Context, messages ...jsonrpc.Message) []string {
	needed := p.policy.Load().ScopesForMessages(messages...)
	if len(needed) == 0 {
		return nil
	}
	g := GrantOf(ctx)
	if g != nil && (g.HasAllScopes || p.policy.Load().Covers(g.Scopes, needed)) {
		return nil
	}
	return auth.UnionScope(p.options.RequiredScopes, needed)
}

// Forbidden implements access.Authenticator: refused says that the sender of r lacks a scope that m needs. reply
// answers m if that is a request, else it is invalid.
func (p *Protector) Forbidden(r *http.Request, m jsonrpc.Message) (reply jsonrpc.Message, refused bool) {
	scopes := p.ScopesToDemand(r.Context(), m)
	if scopes == nil {
		return jsonrpc.Message{}, false
	}
	p.reportDenial(r, &denial{reason: insufficientScope, err: errScopeMissing})
	if m.Kind() == jsonrpc.Request {
		reply = InsufficientScopeReply(m.ID(), scopes)
	}
	return reply, true
}

// InsufficientScopeReply returns the error response to a request whose sender lacks one of these scopes.
func InsufficientScopeReply(id jsonrpc.ID, scopes []string) jsonrpc.Message {
	data := append([]byte(`{"reason":"insufficient_scope","scope":`), jsonrpc.Quote(auth.JoinScope(scopes))...)
	return jsonrpc.NewError(id, jsonrpc.CodeInvalidRequest, clientTexts[insufficientScope], append(data, '}'))
}

// identify returns the Grant of a request's sender, by its credential, or why it is not let through. Scopes are not
// looked at.
func (p *Protector) identify(r *http.Request, e *endpoint) (*Grant, *denial) {
	dpop := usesDPoPScheme(r)
	if len(r.Header["Authorization"]) > 1 || len(r.Header["X-Api-Key"]) > 1 {
		return nil, &denial{reason: malformed, asksForDPoP: dpop, err: errors.New("there are several credentials")}
	}
	if access.TokenInQuery(r.URL.RawQuery) {
		return nil, &denial{reason: invalidToken, asksForDPoP: dpop, err: &auth.Error{Kind: auth.InvalidToken, Cause: "in the URL", Operation: "authorization of a request", Problem: "there is a token in the query"}}
	}
	scheme, token, err := auth.ReadAccessToken(r)
	if err != nil {
		return nil, &denial{reason: invalidToken, asksForDPoP: dpop, err: err}
	}
	if p.options.StaticKeys != nil && len(r.Header["X-Api-Key"]) == 1 {
		key := strings.Trim(r.Header["X-Api-Key"][0], " \t")
		if token != "" && token != key { // the sender knows both
			return nil, &denial{reason: malformed, asksForDPoP: dpop, err: errors.New("there are several credentials")}
		}
		return p.grantForStaticKey(key)
	}
	if token == "" {
		if g := p.certificateGrant(r); g != nil {
			return g, nil
		}
		return nil, &denial{reason: noCredential, err: errors.New("there is no credential")}
	}
	var room [2048]byte // so that tokens of the usual length need no allocation
	sum := sha256.Sum256(append(room[:0], token...))
	v, err := p.cachedToken(r.Context(), sum)
	if v == nil && err == nil {
		if s, ok := p.options.StaticKeys.Sender(token); ok && scheme == auth.SchemeBearer {
			return newStaticKeyGrant(s), nil
		}
		v, err = p.verifyUncached(r.Context(), sum, token)
	}
	switch {
	case auth.Is(err, auth.InvalidToken):
		return nil, &denial{reason: invalidToken, asksForDPoP: dpop, err: err}
	case err != nil:
		return nil, &denial{reason: unavailable, asksForDPoP: dpop, err: err}
	case !v.isFor(e):
		return nil, &denial{reason: invalidToken, asksForDPoP: dpop, err: newWrongAudienceError(v.tokenAudience, e.audiences)}
	}
	if why := p.checkBinding(r, v, scheme, token); why != nil {
		why.asksForDPoP = dpop || why.asksForDPoP
		return nil, why
	}
	return v.grant, nil
}

// newWrongAudienceError returns the error for a token that is valid, but for another audience: token is its audience,
// accepted what would do.
func newWrongAudienceError(token, accepted []string) error {
	return &auth.Error{Kind: auth.InvalidToken, Cause: auth.CauseAudience, Operation: "access token", Problem: "it is for " + auth.DescribeWrongAudience(token, accepted)}
}

// usesDPoPScheme reports whether the Authorization header of a request has the scheme DPoP.
func usesDPoPScheme(r *http.Request) bool {
	values := r.Header["Authorization"]
	if len(values) == 0 {
		return false
	}
	scheme, _, _ := strings.Cut(values[0], " ")
	return strings.EqualFold(scheme, auth.SchemeDPoP)
}

// grantForStaticKey returns the Grant of a static key, or the denial if it is not known.
func (p *Protector) grantForStaticKey(key string) (*Grant, *denial) {
	s, ok := p.options.StaticKeys.Sender(key)
	if !ok {
		return nil, &denial{reason: invalidToken, err: &auth.Error{Kind: auth.InvalidToken, Cause: auth.CauseUnknownKey, Operation: "static key", Problem: "it is not known"}}
	}
	return newStaticKeyGrant(s), nil
}

// newStaticKeyGrant returns the Grant of a static key, which may do everything. s is its sender.
func newStaticKeyGrant(s access.Sender) *Grant {
	return (&Grant{Principal: s.Name, HasAllScopes: true}).fillContextValues(s)
}
