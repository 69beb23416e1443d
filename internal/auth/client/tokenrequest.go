package client

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// requestToken asks for a new token for the credential e; with a refresh token once more if the answer was lost. l counts the requests, and limits their rate.
func (r *renewer) requestToken(l *tokenstore.LockedCredential, e tokenstore.Entry) (token auth.Token, err error) {
	for try := 1; ; try++ {
		if err := l.CountTokenRequest(maxTokenRequestsPerMinute(e.Credential)); err != nil {
			if errors.Is(err, tokenstore.ErrRateLimit) {
				return token, &PermanentError{Problem: "the token is not renewed until somebody signs in again", Err: err}
			}
			return token, err
		}
		token, err = r.sendTokenRequest(r.requestCtx, e.Credential)
		lost, ok := errors.AsType[*auth.Error](err)
		if !ok || lost.Kind != auth.Unavailable || lost.Status != 0 || !lost.RequestSent || try == 2 || r.options.Machine != nil || r.requestCtx.Err() != nil {
			return token, err
		}
	}
}

// maxTokenRequestsPerMinute returns how many token requests a minute a credential may make: the default, or more if its tokens live for seconds only.
func maxTokenRequestsPerMinute(s tokenstore.Credential) int {
	life := s.ExpiresAt.Sub(s.IssuedAt)
	if s.ExpiresAt.IsZero() || s.IssuedAt.IsZero() || life <= 0 {
		return tokenstore.DefaultRequestsPerMinute
	}
	return max(tokenstore.DefaultRequestsPerMinute, int(3*time.Minute/max(life, time.Second)))
}

// sendTokenRequest sends one token request for the credential s: with the grant of Options.Machine, or else with the refresh token.
func (r *renewer) sendTokenRequest(ctx context.Context, s tokenstore.Credential) (auth.Token, error) {
	server := auth.ServerMetadata{Issuer: s.Issuer, TokenEndpoint: s.TokenEndpoint, AuthMethods: r.knownAuthMethods(ctx, s)}
	who, err := r.registrar.clientWithID(ctx, s.Issuer, s.ClientID)
	if err != nil {
		return auth.Token{}, err
	}
	prover, err := r.provers.proverForKey(s.DPoPKey)
	if err != nil {
		return auth.Token{}, err
	}
	if r.options.Machine != nil {
		return r.options.Machine.requestToken(ctx, machineTokenRequest{r.caller, server, who, s.Resource, s.RequestedScopes, prover})
	}
	return r.caller.RequestToken(ctx, server, who, auth.RefreshTokenGrant(s.RefreshToken.Reveal(), s.Resource, nil), prover)
}

// knownAuthMethods returns how clients may authenticate at the token endpoint of s, by the stored metadata; nil: that is not known.
func (r *renewer) knownAuthMethods(ctx context.Context, s tokenstore.Credential) []string {
	site, err := r.record.storedDiscovery(ctx)
	if err != nil || site == nil || site.AuthServer.Issuer != s.Issuer {
		return nil
	}
	return site.AuthServer.AuthMethods
}

// saveToken stores e with its new token t. If the store fails, it keeps the credential in memory (keepUnsaved), and that is no error.
func (r *renewer) saveToken(l *tokenstore.LockedCredential, e tokenstore.Entry, t auth.Token) (*credentialSnapshot, error) {
	if r.options.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return nil, &PermanentError{Problem: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	next := credentialWithToken(e.Credential, t, r.now())
	next.IsMachine = r.options.Machine != nil
	if _, err := l.Save(next, e.Generation); err != nil {
		return r.keepUnsaved(next, e.Generation, err)
	}
	return r.tokens.makeCurrent(l.Entry())
}

// credentialWithToken returns s with the new token t. Refresh token, id token and scopes stay where t has none.
func credentialWithToken(s tokenstore.Credential, t auth.Token, now time.Time) tokenstore.Credential {
	s.AccessToken, s.TokenType, s.IssuedAt, s.ExpiresAt, s.LastProblem = tokenstore.NewSecret(t.AccessToken), t.Type, now, t.Expires, ""
	if t.RefreshToken != "" {
		s.RefreshToken = tokenstore.NewSecret(t.RefreshToken)
	}
	if t.IDToken != "" {
		s.IDToken = tokenstore.NewSecret(t.IDToken)
	}
	if t.Scopes != nil {
		s.GrantedScopes = t.Scopes
	}
	return s
}

// An unsavedCredential is a credential that the issuer has given, and that could not be written to the store.
type unsavedCredential struct {
	credential         tokenstore.Credential // the credential, to be stored as soon as that works
	replacedGeneration tokenstore.Generation // the generation in the store that it is to replace
}

// keepUnsaved makes s, which could not be stored because of err, the current credential. The next renewal stores it first.
func (r *renewer) keepUnsaved(s tokenstore.Credential, replaces tokenstore.Generation, err error) (*credentialSnapshot, error) {
	h, bad := r.tokens.newSnapshot(tokenstore.Entry{Generation: replaces, Credential: s})
	if bad != nil {
		return nil, bad
	}
	h.isUnsaved = true
	r.mu.Lock()
	r.unsavedCredential = &unsavedCredential{s, replaces}
	r.renewPause = renewalPause{until: r.now().Add(minRenewPause), err: err, generation: replaces, failures: 1}
	r.mu.Unlock()
	r.tokens.current.Store(h)
	r.reportError(err)
	return h, nil
}

// saveUnsaved tries to store the credential that could not be stored before. done: renewing is over, because that is stored and not due, or still cannot be
// stored (err). done is also false if there is no such credential.
func (r *renewer) saveUnsaved(l *tokenstore.LockedCredential) (got *credentialSnapshot, done bool, err error) {
	r.mu.Lock()
	u := r.unsavedCredential
	r.mu.Unlock()
	if u == nil {
		return nil, false, nil
	}
	_, err = l.Save(u.credential, u.replacedGeneration)
	if err != nil && !errors.Is(err, tokenstore.ErrStale) {
		return r.tokens.current.Load(), true, err
	}
	r.mu.Lock()
	r.unsavedCredential = nil
	r.mu.Unlock()
	r.tokens.current.Store(nil) // a stale one gives way to what somebody else has stored
	got, err = r.tokens.makeCurrent(l.Entry())
	if got == nil || got.isDue(r.now()) {
		return got, false, err
	}
	return got, true, err
}

// dropUnsaved forgets the credential that could not be stored.
func (r *renewer) dropUnsaved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsavedCredential = nil
}
