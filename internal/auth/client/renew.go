package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// beginRenewal returns the renewal that is under way, or begins one.
func (c *Credential) beginRenewal(h *snapshot) (*renewal, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.renewing != nil {
		return c.renewing, nil
	}
	f := &renewal{done: make(chan struct{})}
	c.renewing = f
	c.renewals.Go(func() {
		f.result, f.err = c.renew(h)
		c.mu.Lock()
		c.renewing = nil
		c.pauseAfter(h.generation, f.err)
		c.mu.Unlock()
		close(f.done)
		c.reportError(f.err)
	})
	return f, nil
}

// wait waits for the result of a renewal. A caller that leaves does not end it.
func (f *renewal) wait(ctx context.Context) (*snapshot, error) {
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the token is being renewed: %w", ctx.Err())
	}
}

// pauseAfter notes how the renewal of a credential went. c.mu is held.
func (c *Credential) pauseAfter(of tokenstore.Generation, err error) {
	if err == nil {
		if c.unsaved == nil {
			c.renewPause = pause{}
		}
		return
	}
	p := pause{failures: 1, err: err, generation: of}
	if c.renewPause.err != nil && c.renewPause.generation == of {
		p.failures = c.renewPause.failures + 1
	}
	wait := min(minRenewPause<<min(p.failures-1, 20), maxRenewPause)
	wait = wait/2 + time.Duration(c.random()*float64(wait/2))
	if e, ok := errors.AsType[*auth.Error](err); ok {
		wait = max(wait, min(e.RetryAfter, maxRetryAfter))
	}
	if !isTransient(err) {
		wait = maxRenewPause
	}
	p.until = c.now().Add(wait)
	c.renewPause = p
}

// pausedFor reports whether a renewal failed so recently that none is tried now.
func (c *Credential) pausedFor(of tokenstore.Generation, now time.Time) (error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.renewPause
	until := p.until
	if until.Sub(now) > 24*time.Hour {
		until = now // the clock was set back
	}
	return p.err, p.err != nil && p.generation == of && now.Before(until)
}

// renew takes the lock, reads again, asks for a token, stores it, and gives the lock back.
func (c *Credential) renew(old *snapshot) (*snapshot, error) {
	for try := 1; ; try++ {
		var got *snapshot
		ctx, cancel := context.WithTimeout(c.lockWaitCtx, lockTimeout)
		err := c.o.Store.WithLock(ctx, c.key, func(l *tokenstore.Locked) (err error) {
			got, err = c.renewLocked(l, old)
			return err
		})
		cancel()
		if errors.Is(err, tokenstore.ErrBroken) && try == 1 {
			c.reportError(err)
			continue // it was set aside
		}
		return got, err
	}
}

// renewLocked does it with the lock held.
func (c *Credential) renewLocked(l *tokenstore.Locked, old *snapshot) (*snapshot, error) {
	e := l.Entry()
	if got, done, err := c.saveUnsaved(l); done {
		return got, err
	}
	if e.Generation == 0 {
		c.current.Store(nil)
		return nil, c.signInRequired("the credential was deleted")
	}
	if e.Generation != old.generation {
		h, err := c.makeCurrent(e)
		if err != nil {
			return nil, err
		}
		if h != nil && !h.isDue(c.now()) && !c.isRefused(h) {
			return h, nil
		}
	}
	if c.o.Machine == nil && (e.Credential.Refresh.IsZero() || l.IsSpent(e.Credential.Refresh)) {
		return nil, c.signInRequired("the token has ended, and there is none to renew it with")
	}
	token, err := c.requestToken(l, e)
	if err != nil {
		return c.renewalFailed(l, e, err)
	}
	return c.saveToken(l, e, token)
}

// requestToken sends the token request, and once more if no answer came: it may have been lost on the way back.
func (c *Credential) requestToken(l *tokenstore.Locked, e tokenstore.Entry) (token auth.Token, err error) {
	for try := 1; ; try++ {
		if err := l.CountRequest(requestsPerMinute(e.Credential)); err != nil {
			if errors.Is(err, tokenstore.ErrRateLimit) {
				return token, &PermanentError{Problem: "the token is not renewed until somebody signs in again", Err: err}
			}
			return token, err
		}
		token, err = c.sendTokenRequest(c.requestCtx, e.Credential)
		lost, ok := errors.AsType[*auth.Error](err)
		if !ok || lost.Kind != auth.Unavailable || lost.Status != 0 || !lost.RequestSent || try == 2 || c.o.Machine != nil || c.requestCtx.Err() != nil {
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
func (c *Credential) sendTokenRequest(ctx context.Context, s tokenstore.Credential) (auth.Token, error) {
	server := auth.ServerMetadata{Issuer: s.Issuer, Token: s.TokenEndpoint, AuthMethods: c.knownMethods(ctx, s)}
	who, err := c.clientOf(ctx, s.Issuer, s.ClientID)
	if err != nil {
		return auth.Token{}, err
	}
	prover, err := c.proverOf(s.DPoPKey)
	if err != nil {
		return auth.Token{}, err
	}
	if c.o.Machine != nil {
		return c.o.Machine.token(ctx, machineRequest{c.caller, server, who, s.Resource, s.RequestedScopes, prover})
	}
	return c.caller.Token(ctx, server, who, auth.RefreshToken(s.Refresh.Reveal(), s.Resource, nil), prover)
}

// saveToken stores a token in the place of the one it renews.
func (c *Credential) saveToken(l *tokenstore.Locked, e tokenstore.Entry, t auth.Token) (*snapshot, error) {
	if c.o.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return nil, &PermanentError{Problem: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	next := withToken(e.Credential, t, c.now())
	if _, err := l.Save(next, e.Generation); err != nil {
		return c.keepUnsaved(next, e.Generation, err)
	}
	return c.makeCurrent(l.Entry())
}

// withToken returns a credential with a new token. What the answer does not say stays.
func withToken(s tokenstore.Credential, t auth.Token, now time.Time) tokenstore.Credential {
	s.Access, s.TokenType, s.Issued, s.Expires, s.Problem = tokenstore.NewSecret(t.Access), t.Type, now, t.Expires, ""
	if t.Refresh != "" {
		s.Refresh = tokenstore.NewSecret(t.Refresh)
	}
	if t.ID != "" {
		s.ID = tokenstore.NewSecret(t.ID)
	}
	if t.Scopes != nil {
		s.GrantedScopes = t.Scopes
	}
	return s
}

// keepUnsaved uses a credential that could not be stored. The next renewal stores it first.
func (c *Credential) keepUnsaved(s tokenstore.Credential, replaces tokenstore.Generation, err error) (*snapshot, error) {
	h, bad := c.newSnapshot(tokenstore.Entry{Generation: replaces, Credential: s})
	if bad != nil {
		return nil, bad
	}
	h.unsaved = true
	c.mu.Lock()
	c.unsaved = &unsaved{s, replaces}
	c.renewPause = pause{until: c.now().Add(minRenewPause), err: err, generation: replaces, failures: 1}
	c.mu.Unlock()
	c.current.Store(h)
	c.reportError(err)
	return h, nil
}

// saveUnsaved stores what could not be stored before. done: it was stored, or still cannot be, and there
// is nothing more to do now.
func (c *Credential) saveUnsaved(l *tokenstore.Locked) (got *snapshot, done bool, err error) {
	c.mu.Lock()
	u := c.unsaved
	c.mu.Unlock()
	if u == nil {
		return nil, false, nil
	}
	_, err = l.Save(u.credential, u.replaces)
	if err != nil && !errors.Is(err, tokenstore.ErrStale) {
		return c.current.Load(), true, err
	}
	c.mu.Lock()
	c.unsaved = nil
	c.mu.Unlock()
	c.current.Store(nil) // a stale one gives way to what somebody else has stored
	got, err = c.makeCurrent(l.Entry())
	if got == nil || got.isDue(c.now()) {
		return got, false, err
	}
	return got, true, err
}

// renewalFailed decides what an error of the token endpoint means for what is stored.
func (c *Credential) renewalFailed(l *tokenstore.Locked, e tokenstore.Entry, err error) (*snapshot, error) {
	switch {
	case auth.Is(err, auth.InvalidGrant) && c.o.Machine == nil:
		// Somebody who ignores locks may have replaced it meanwhile.
		now, loadErr := c.o.Store.Load(c.requestCtx, c.key)
		if loadErr == nil && now.Generation != e.Generation && !now.Credential.Refresh.Equal(e.Credential.Refresh) {
			return c.makeCurrent(now)
		}
		if spendErr := l.MarkSpent(e.Credential.Refresh); spendErr != nil {
			c.reportError(spendErr)
		}
		c.adoptWithoutRefresh(l.Entry())
		return nil, c.signInRequired("the authorization server does not take the refresh token any more")
	case auth.Is(err, auth.InvalidClient):
		if c.forgetRegistration(e.Credential.Issuer, e.Credential.ClientID) {
			if spendErr := l.MarkSpent(e.Credential.Refresh); spendErr != nil {
				c.reportError(spendErr)
			}
			c.adoptWithoutRefresh(l.Entry())
			return nil, c.signInRequired("the authorization server does not know this client any more")
		}
		return nil, &PermanentError{Problem: "the authorization server does not take the client id or its secret", Err: err}
	case isTransient(err):
		return nil, err
	}
	if _, ok := errors.AsType[*PermanentError](err); ok {
		return nil, err
	}
	return nil, &PermanentError{Problem: "the token cannot be renewed", Err: err}
}

// adoptWithoutRefresh goes on with a credential that has lost its refresh token only.
func (c *Credential) adoptWithoutRefresh(e tokenstore.Entry) {
	if _, err := c.makeCurrent(e); err != nil {
		c.reportError(err)
	}
}

// knownMethods returns how clients authenticate at the token endpoint, as its stored metadata says.
func (c *Credential) knownMethods(ctx context.Context, s tokenstore.Credential) []string {
	site, err := c.storedDiscovery(ctx)
	if err != nil || site == nil || site.Server.Issuer != s.Issuer {
		return nil
	}
	return site.Server.AuthMethods
}

// replaceRefused returns what to use in the place of a token that the server refused with 401: the one that
// somebody has replaced it with, or one that is asked for now. nil: there is none.
func (c *Credential) replaceRefused(ctx context.Context, old *snapshot) (*snapshot, error) {
	if h := c.current.Load(); c.mayReplace(h, old) {
		return h, nil
	}
	c.noteRefused(old)
	h, err := c.loadUsable(ctx, nil)
	if h != nil && h.sameToken(old) {
		return nil, err
	}
	return h, err
}
