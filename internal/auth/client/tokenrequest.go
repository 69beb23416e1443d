package client

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// requestToken sends the token request, and once more if no answer came: it may have been lost on the way back.
func (r *renewer) requestToken(l *tokenstore.Locked, e tokenstore.Entry) (token auth.Token, err error) {
	for try := 1; ; try++ {
		if err := l.CountRequest(requestsPerMinute(e.Credential)); err != nil {
			if errors.Is(err, tokenstore.ErrRateLimit) {
				return token, &PermanentError{Problem: "the token is not renewed until somebody signs in again", Err: err}
			}
			return token, err
		}
		token, err = r.sendTokenRequest(r.requestCtx, e.Credential)
		lost, ok := errors.AsType[*auth.Error](err)
		if !ok || lost.Kind != auth.Unavailable || lost.Status != 0 || !lost.RequestSent || try == 2 || r.o.Machine != nil || r.requestCtx.Err() != nil {
			return token, err
		}
	}
}

// requestsPerMinute returns how many token requests a minute a credential needs, with room for those that
// fail: a token that lives for seconds is renewed that often.
func requestsPerMinute(s tokenstore.Credential) int {
	life := s.Expires.Sub(s.Issued)
	if s.Expires.IsZero() || s.Issued.IsZero() || life <= 0 {
		return tokenstore.DefaultRequests
	}
	return max(tokenstore.DefaultRequests, int(3*time.Minute/max(life, time.Second)))
}

// sendTokenRequest sends one token request.
func (r *renewer) sendTokenRequest(ctx context.Context, s tokenstore.Credential) (auth.Token, error) {
	server := auth.ServerMetadata{Issuer: s.Issuer, TokenEndpoint: s.TokenEndpoint, AuthMethods: r.knownMethods(ctx, s)}
	who, err := r.clients.clientOf(ctx, s.Issuer, s.ClientID)
	if err != nil {
		return auth.Token{}, err
	}
	prover, err := r.keys.proverOf(s.DPoPKey)
	if err != nil {
		return auth.Token{}, err
	}
	if r.o.Machine != nil {
		return r.o.Machine.token(ctx, machineRequest{r.caller, server, who, s.Resource, s.RequestedScopes, prover})
	}
	return r.caller.RequestToken(ctx, server, who, auth.RefreshTokenGrant(s.Refresh.Reveal(), s.Resource, nil), prover)
}

// knownMethods returns how clients authenticate at the token endpoint, as its stored metadata says.
func (r *renewer) knownMethods(ctx context.Context, s tokenstore.Credential) []string {
	site, err := r.record.storedDiscovery(ctx)
	if err != nil || site == nil || site.Server.Issuer != s.Issuer {
		return nil
	}
	return site.Server.AuthMethods
}

// saveToken stores a token in the place of the one it renews.
func (r *renewer) saveToken(l *tokenstore.Locked, e tokenstore.Entry, t auth.Token) (*snapshot, error) {
	if r.o.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return nil, &PermanentError{Problem: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	next := withToken(e.Credential, t, r.now())
	next.Machine = r.o.Machine != nil
	if _, err := l.Save(next, e.Generation); err != nil {
		return r.keepUnsaved(next, e.Generation, err)
	}
	return r.tokens.makeCurrent(l.Entry())
}

// withToken returns a credential with a new token. What the answer does not say stays.
func withToken(s tokenstore.Credential, t auth.Token, now time.Time) tokenstore.Credential {
	s.Access, s.TokenType, s.Issued, s.Expires, s.Problem = tokenstore.NewSecret(t.AccessToken), t.Type, now, t.Expires, ""
	if t.RefreshToken != "" {
		s.Refresh = tokenstore.NewSecret(t.RefreshToken)
	}
	if t.IDToken != "" {
		s.ID = tokenstore.NewSecret(t.IDToken)
	}
	if t.Scopes != nil {
		s.GrantedScopes = t.Scopes
	}
	return s
}

// An unsaved credential is one that the issuer has given, and the disk did not take.
type unsaved struct {
	credential tokenstore.Credential
	replaces   tokenstore.Generation
}

// keepUnsaved uses a credential that could not be stored. The next renewal stores it first.
func (r *renewer) keepUnsaved(s tokenstore.Credential, replaces tokenstore.Generation, err error) (*snapshot, error) {
	h, bad := r.tokens.newSnapshot(tokenstore.Entry{Generation: replaces, Credential: s})
	if bad != nil {
		return nil, bad
	}
	h.unsaved = true
	r.mu.Lock()
	r.unsaved = &unsaved{s, replaces}
	r.renewPause = pause{until: r.now().Add(minRenewPause), err: err, generation: replaces, failures: 1}
	r.mu.Unlock()
	r.tokens.current.Store(h)
	r.reportError(err)
	return h, nil
}

// saveUnsaved stores what could not be stored before. done: it was stored, or still cannot be, and there
// is nothing more to do now.
func (r *renewer) saveUnsaved(l *tokenstore.Locked) (got *snapshot, done bool, err error) {
	r.mu.Lock()
	u := r.unsaved
	r.mu.Unlock()
	if u == nil {
		return nil, false, nil
	}
	_, err = l.Save(u.credential, u.replaces)
	if err != nil && !errors.Is(err, tokenstore.ErrStale) {
		return r.tokens.current.Load(), true, err
	}
	r.mu.Lock()
	r.unsaved = nil
	r.mu.Unlock()
	r.tokens.current.Store(nil) // a stale one gives way to what somebody else has stored
	got, err = r.tokens.makeCurrent(l.Entry())
	if got == nil || got.isDue(r.now()) {
		return got, false, err
	}
	return got, true, err
}

// dropUnsaved forgets a credential that could not be stored.
func (r *renewer) dropUnsaved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved = nil
}
