package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// renewal returns the renewal that is under way, or begins one.
func (c *Credential) renewal(h *held) (*flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.flight != nil {
		return c.flight, nil
	}
	f := &flight{done: make(chan struct{})}
	c.flight = f
	c.renewals.Go(func() {
		f.result, f.err = c.renew(h)
		c.mu.Lock()
		c.flight = nil
		c.pauseAfter(h.generation, f.err)
		c.mu.Unlock()
		close(f.done)
		c.notice(f.err)
	})
	return f, nil
}

// wait waits for the result of a renewal. A caller that leaves does not end it.
func (f *flight) wait(ctx context.Context) (*held, error) {
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
			c.paused = pause{}
		}
		return
	}
	p := pause{failures: 1, err: err, generation: of}
	if c.paused.err != nil && c.paused.generation == of {
		p.failures = c.paused.failures + 1
	}
	wait := min(firstPause<<min(p.failures-1, 20), maxPause)
	wait = wait/2 + time.Duration(c.random()*float64(wait/2))
	if e, ok := errors.AsType[*auth.Error](err); ok {
		wait = max(wait, min(e.RetryAfter, maxRetryAfter))
	}
	if !isTransient(err) {
		wait = maxPause
	}
	p.until = c.now().Add(wait)
	c.paused = p
}

// pausedFor reports whether a renewal failed so recently that none is tried now.
func (c *Credential) pausedFor(of tokenstore.Generation, now time.Time) (error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.paused
	until := p.until
	if until.Sub(now) > 24*time.Hour {
		until = now // the clock was set back
	}
	return p.err, p.err != nil && p.generation == of && now.Before(until)
}

// renew takes the lock, reads again, asks for a token, stores it, and gives the lock back.
func (c *Credential) renew(old *held) (*held, error) {
	for try := 1; ; try++ {
		var got *held
		ctx, cancel := context.WithTimeout(c.waiting, lockTimeout)
		err := c.o.Store.WithLock(ctx, c.key, func(l *tokenstore.Locked) (err error) {
			got, err = c.renewLocked(l, old)
			return err
		})
		cancel()
		if errors.Is(err, tokenstore.ErrBroken) && try == 1 {
			c.notice(err)
			continue // it was set aside
		}
		return got, err
	}
}

// renewLocked does it with the lock held.
func (c *Credential) renewLocked(l *tokenstore.Locked, old *held) (*held, error) {
	e := l.Entry()
	if got, done, err := c.saveUnsaved(l); done {
		return got, err
	}
	if e.Generation == 0 {
		c.current.Store(nil)
		return nil, c.required("the credential was deleted")
	}
	if e.Generation != old.generation {
		h, err := c.adopt(e)
		if err != nil {
			return nil, err
		}
		if h != nil && !h.isDue(c.now()) && !c.isRefused(h) {
			return h, nil
		}
	}
	if c.o.Machine == nil && (e.Credential.Refresh.IsZero() || l.IsSpent(e.Credential.Refresh)) {
		return nil, c.required("the token has ended, and there is none to renew it with")
	}
	token, err := c.ask(l, e)
	if err != nil {
		return c.renewalFailed(l, e, err)
	}
	return c.save(l, e, token)
}

// ask sends the token request, and once more if no answer came: it may have been lost on the way back.
func (c *Credential) ask(l *tokenstore.Locked, e tokenstore.Entry) (token auth.Token, err error) {
	for try := 1; ; try++ {
		if err := l.Request(requests(e.Credential)); err != nil {
			if errors.Is(err, tokenstore.ErrRateLimit) {
				return token, &Permanent{What: "the token is not renewed until somebody signs in again", Err: err}
			}
			return token, err
		}
		token, err = c.send(c.life, e.Credential)
		lost, ok := errors.AsType[*auth.Error](err)
		if !ok || lost.Kind != auth.Unavailable || lost.Status != 0 || !lost.Sent || try == 2 || c.o.Machine != nil || c.life.Err() != nil {
			return token, err
		}
	}
}

// requests returns how many token requests a minute a credential needs, with room for those that
// fail: a token that lives for seconds is renewed that often.
func requests(s tokenstore.Credential) int {
	life := s.Expires.Sub(s.Issued)
	if s.Expires.IsZero() || s.Issued.IsZero() || life <= 0 {
		return tokenstore.DefaultRequests
	}
	return max(tokenstore.DefaultRequests, int(3*time.Minute/max(life, time.Second)))
}

// send sends one token request.
func (c *Credential) send(ctx context.Context, s tokenstore.Credential) (auth.Token, error) {
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
		return c.o.Machine.token(ctx, machineRequest{c.caller, server, who, s.Resource, s.Asked, prover})
	}
	return c.caller.Token(ctx, server, who, auth.RefreshToken(s.Refresh.Reveal(), s.Resource, nil), prover)
}

// save stores a token in the place of the one it renews.
func (c *Credential) save(l *tokenstore.Locked, e tokenstore.Entry, t auth.Token) (*held, error) {
	if c.o.DPoP == DPoPRequire && t.Type != auth.SchemeDPoP {
		return nil, &Permanent{What: "DPoP is required", Err: errors.New("the authorization server issued a token that is not bound to a key")}
	}
	next := withToken(e.Credential, t, c.now())
	if _, err := l.Save(next, e.Generation); err != nil {
		return c.keep(next, e.Generation, err)
	}
	return c.adopt(l.Entry())
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
		s.Granted = t.Scopes
	}
	return s
}

// keep uses a credential that could not be stored. The next renewal stores it first.
func (c *Credential) keep(s tokenstore.Credential, replaces tokenstore.Generation, err error) (*held, error) {
	h, bad := c.newHeld(tokenstore.Entry{Generation: replaces, Credential: s})
	if bad != nil {
		return nil, bad
	}
	h.unsaved = true
	c.mu.Lock()
	c.unsaved = &unsaved{s, replaces}
	c.paused = pause{until: c.now().Add(firstPause), err: err, generation: replaces, failures: 1}
	c.mu.Unlock()
	c.current.Store(h)
	c.notice(err)
	return h, nil
}

// saveUnsaved stores what could not be stored before. done: it was stored, or still cannot be, and there
// is nothing more to do now.
func (c *Credential) saveUnsaved(l *tokenstore.Locked) (got *held, done bool, err error) {
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
	got, err = c.adopt(l.Entry())
	if got == nil || got.isDue(c.now()) {
		return got, false, err
	}
	return got, true, err
}

// renewalFailed decides what an error of the token endpoint means for what is stored.
func (c *Credential) renewalFailed(l *tokenstore.Locked, e tokenstore.Entry, err error) (*held, error) {
	switch {
	case auth.Is(err, auth.InvalidGrant) && c.o.Machine == nil:
		// Somebody who ignores locks may have replaced it meanwhile.
		now, loadErr := c.o.Store.Load(c.life, c.key)
		if loadErr == nil && now.Generation != e.Generation && !now.Credential.Refresh.Equal(e.Credential.Refresh) {
			return c.adopt(now)
		}
		if spendErr := l.Spend(e.Credential.Refresh); spendErr != nil {
			c.notice(spendErr)
		}
		c.adoptSpent(l.Entry())
		return nil, c.required("the authorization server does not take the refresh token any more")
	case auth.Is(err, auth.InvalidClient):
		if c.forget(e.Credential.Issuer, e.Credential.ClientID) {
			if spendErr := l.Spend(e.Credential.Refresh); spendErr != nil {
				c.notice(spendErr)
			}
			c.adoptSpent(l.Entry())
			return nil, c.required("the authorization server does not know this client any more")
		}
		return nil, &Permanent{What: "the authorization server does not take the client id or its secret", Err: err}
	case isTransient(err):
		return nil, err
	}
	if _, ok := errors.AsType[*Permanent](err); ok {
		return nil, err
	}
	return nil, &Permanent{What: "the token cannot be renewed", Err: err}
}

// adoptSpent goes on with a credential that has lost its refresh token only.
func (c *Credential) adoptSpent(e tokenstore.Entry) {
	if _, err := c.adopt(e); err != nil {
		c.notice(err)
	}
}

// knownMethods returns how clients authenticate at the token endpoint, as its stored metadata says.
func (c *Credential) knownMethods(ctx context.Context, s tokenstore.Credential) []string {
	site, err := c.storedSite(ctx)
	if err != nil || site == nil || site.Server.Issuer != s.Issuer {
		return nil
	}
	return site.Server.AuthMethods
}

// renewRefused returns what to use in the place of a token that the server refused with 401: the one that
// somebody has replaced it with, or one that is asked for now. nil: there is none.
func (c *Credential) renewRefused(ctx context.Context, old *held) (*held, error) {
	if h := c.current.Load(); c.replaces(h, old) {
		return h, nil
	}
	c.refuse(old)
	h, err := c.fetch(ctx, nil)
	if h != nil && h.sameToken(old) {
		return nil, err
	}
	return h, err
}
