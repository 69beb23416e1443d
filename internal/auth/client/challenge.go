package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// maxStepUps is how often somebody signs in for the same scopes after a 403. With the first sign-in
// that makes three attempts.
const maxStepUps = 2

// take waits for the turn to answer a challenge: of many requests that are refused at the same time, one
// finds out what to do.
func (c *Credential) take(ctx context.Context) (release func(), err error) {
	select {
	case c.challengeTurn <- struct{}{}:
		return func() { <-c.challengeTurn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another request is finding out where to sign in: %w", ctx.Err())
	}
}

// unauthorized answers a 401. old is what the request had, nil: nothing. again: old was new a moment ago.
// It returns what to try next; nil without an error: nobody can sign in there, and the 401 is the answer.
func (c *Credential) unauthorized(ctx context.Context, d auth.Demand, old *held, again bool) (*held, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	next, reason, err := c.answer401(ctx, d, old, again)
	if next == nil && err == nil {
		next, err = c.signInPerson(ctx, reason, old)
	}
	if errors.Is(err, errNoSignIn) {
		return nil, nil
	}
	return next, c.waited(ctx, err)
}

// answer401 does what needs no person. Without a result and an error, a person must sign in, for the reason.
func (c *Credential) answer401(ctx context.Context, d auth.Demand, old *held, again bool) (next *held, reason string, err error) {
	release, err := c.take(ctx)
	if err != nil {
		return nil, "", err
	}
	defer release()
	now, err := c.read(ctx)
	if err != nil {
		return nil, "", err
	}
	if c.replaces(now, old) {
		return now, "", nil
	}
	if err := c.note(ctx, d, old, false); err != nil {
		return nil, "", err
	}
	s, err := c.siteOf401(ctx, d, old)
	if err != nil && (old == nil || ctx.Err() != nil || !auth.Is(err, auth.Unavailable)) {
		return nil, "", err
	}
	moved := old != nil && s != nil && !s.Origin && !s.names(old.stored.Issuer)
	if old != nil && !moved && !again && c.o.Machine == nil {
		next, err = c.renewRefused(ctx, old)
		var required *Required
		switch {
		case errors.As(err, &required):
			reason = required.Reason
		case next != nil || err != nil:
			return next, "", err
		}
	}
	switch {
	case s == nil:
		return nil, "", err
	case c.o.Machine != nil && again:
		c.noteRefusal(ctx, old, refusesEvery)
		return nil, "", &Permanent{What: "the server refuses a token that was just issued", Err: errStatus401}
	case c.o.Machine != nil:
		next, err = c.machineSigns(ctx, s, old)
		return next, "", err
	case moved:
		reason = "the server has changed to another authorization server"
	case reason == "" && again:
		reason = "the server refuses a token that was just issued"
	case reason == "" && old != nil:
		reason = "the server does not take the stored token any more"
	case reason == "":
		reason = "nobody has signed in to " + c.o.Server
	}
	return nil, reason, c.beforeSignIn(ctx, d, s, old, moved, again, reason)
}

// beforeSignIn notes that a person must sign in, and returns why that would be of no use; old, moved, again and reason are those of
// answer401.
func (c *Credential) beforeSignIn(ctx context.Context, d auth.Demand, s *site, old *held, moved, again bool, reason string) error {
	h := c.current.Load()
	if old != nil && h != nil && h.sameToken(old) {
		c.refuse(old)
		if moved || again { // to renew it helps nobody
			c.mu.Lock()
			c.unrenewable, c.unrenewableAt = h.generation, c.now()
			c.mu.Unlock()
		}
	}
	w, err := c.askedByServer(ctx)
	if err != nil {
		return err
	}
	if h != nil && !moved {
		if c.isUseless(w, h, d.Scopes) {
			c.noteRefusal(ctx, h, refusesNew)
			return &Permanent{What: refusesNew, Err: fmt.Errorf("%w; once that is mended, run: mcp-bridge login %s", errStatus401, c.o.Server)}
		}
		c.noteRefusal(ctx, h, reason)
	}
	_, err = c.choose(s, c.redirectURI(c.port()))
	return err
}

// siteOf401 returns the site of a server that has answered 401. errNoSignIn: nothing shows that it has one.
func (c *Credential) siteOf401(ctx context.Context, d auth.Demand, old *held) (*site, error) {
	s, err := c.discover(ctx, d.ResourceMetadata, old != nil)
	protected := d.ResourceMetadata != "" || s != nil && s.Resource.Resource != "" // also if the rest is wrong
	if err != nil {
		s = nil
	}
	if old == nil && !protected && (auth.Is(err, auth.Invalid) || err == nil && !c.canSignIn(ctx, s)) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("registering at %s: %w", s.Server.Issuer, ctx.Err())
		}
		c.notice(err)
		return nil, errNoSignIn
	}
	return s, err
}

// note remembers what a challenge asks for.
func (c *Credential) note(ctx context.Context, d auth.Demand, old *held, stepUp bool) error {
	w, err := c.askedByServer(ctx)
	if err != nil {
		return err
	}
	before := fmt.Sprint(w)
	if d.ResourceMetadata != "" {
		w.Announced = d.ResourceMetadata
	}
	if d.Bearer || d.DPoP {
		w.DPoP = d.DPoP && !d.Bearer
	}
	if stepUp && old != nil {
		w.Scopes = auth.UnionScope(auth.UnionScope(w.Scopes, old.stored.Asked), old.stored.Granted)
	}
	w.Scopes = auth.UnionScope(w.Scopes, d.Scopes)
	if len(w.Scopes) > maxScopes {
		return &Permanent{What: "the server asks for too many rights", Err: fmt.Errorf("its challenges have named %d scopes", len(w.Scopes))}
	}
	w.StepUp = stepUp
	if fmt.Sprint(w) == before {
		return nil
	}
	return c.remember(ctx, wantsDocument, w, time.Time{})
}

// forbidden answers a 403 with insufficient_scope: somebody signs in again, for all scopes so far and
// those that the server names (the specification's step-up authorization flow).
func (c *Credential) forbidden(ctx context.Context, d auth.Demand, old *held) (*held, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	next, err := c.answer403(ctx, d, old)
	if next == nil && err == nil {
		next, err = c.signInPerson(ctx, fmt.Sprintf("the server wants more rights: %.200s", auth.JoinScope(d.Scopes)), old)
	}
	return next, c.waited(ctx, err)
}

func (c *Credential) answer403(ctx context.Context, d auth.Demand, old *held) (*held, error) {
	release, err := c.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	now, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	if old != nil && c.replaces(now, old) {
		return now, nil
	}
	if err := c.note(ctx, d, old, true); err != nil {
		return nil, err
	}
	w, err := c.askedByServer(ctx)
	if err != nil {
		return nil, err
	}
	if w.Attempts[scopeKey(w.Scopes)] >= maxStepUps && w.recent(c.now(), attemptWindow) > 0 {
		return nil, &Permanent{What: "the server wants more rights than signing in brings; whoever runs its identity provider has to allow them for you and this client", Err: fmt.Errorf("it still wants %.200q after %d attempts", d.Scopes, maxStepUps+1)}
	}
	s, err := c.discover(ctx, d.ResourceMetadata, false)
	if err != nil || c.o.Machine == nil {
		return nil, err
	}
	return c.machineSigns(ctx, s, old)
}

// scopeKey names a set of scopes.
func scopeKey(scopes []string) string { return auth.JoinScope(sortedCopy(scopes)) }

// attempted counts a sign-in that a 403 was the reason of.
func (c *Credential) attempted(ctx context.Context) error {
	w, err := c.askedByServer(ctx)
	if err != nil {
		return err
	}
	now := c.now()
	if w.recent(now, attemptWindow) == 0 {
		w.Attempts = nil
	}
	w.Signed, w.Proven = append(w.Signed, now), false
	w.Signed = w.Signed[max(0, len(w.Signed)-maxSignIns):]
	if w.StepUp {
		w.Attempts = cloneMap(w.Attempts)
		if len(w.Attempts) >= 32 {
			clear(w.Attempts)
		}
		w.Attempts[scopeKey(w.Scopes)]++
	} else {
		w.Attempts = nil
	}
	return c.remember(ctx, wantsDocument, w, time.Time{})
}

// signInPerson has a person sign in, and returns the credential that comes of it.
func (c *Credential) signInPerson(ctx context.Context, reason string, old *held) (*held, error) {
	need := c.required(reason)
	now, err := c.read(ctx)
	switch {
	case err != nil:
		return nil, err
	case c.replaces(now, old):
		return now, nil // somebody was quicker
	case now != nil:
		need.Known = now.generation
	}
	if c.o.SignIn == nil {
		return nil, need
	}
	if w, err := c.askedByServer(ctx); err != nil {
		return nil, err
	} else if n := w.recent(c.now(), signInWindow); n >= maxSignIns {
		return nil, &Permanent{What: "the server asks for a sign-in again and again", Err: fmt.Errorf("there were %d in the last %v, and it still says: %s; ask its operator, or sign in by hand", n, signInWindow, reason)}
	}
	if err := c.o.SignIn(ctx, c, *need); err != nil {
		return nil, err
	}
	h, err := c.read(ctx)
	if err == nil && !c.replaces(h, old) {
		return nil, need
	}
	return h, err
}

// machineSigns gets the first token, or one with more scopes, without a person.
func (c *Credential) machineSigns(ctx context.Context, s *site, old *held) (got *held, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of := tokenstore.Generation(0)
	if old != nil {
		of = old.generation
	}
	if err, paused := c.pausedFor(of, c.now()); paused {
		return nil, err
	}
	if _, err := c.choose(s, ""); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	c.renewals.Add(1)
	c.mu.Unlock()
	defer c.renewals.Done()
	lockCtx, cancel := context.WithTimeout(c.waiting, lockTimeout)
	defer cancel()
	w, err := c.askedByServer(ctx)
	if err != nil {
		return nil, err
	}
	err = c.o.Store.WithLock(lockCtx, c.key, func(l *tokenstore.Locked) error {
		e := l.Entry()
		if now, err := c.adopt(e); err != nil {
			return err
		} else if c.replaces(now, old) {
			got = now
			return nil
		}
		next, err := c.begin(s, w, e.Credential, c.scopes(s, w, false))
		if err != nil {
			return err
		}
		next.ClientID = c.machineClient()
		e.Credential = next
		token, err := c.ask(l, e)
		if err != nil {
			_, err = c.renewalFailed(l, e, err)
			return err
		}
		got, err = c.save(l, e, token)
		return err
	})
	c.mu.Lock()
	c.pauseAfter(of, err)
	c.mu.Unlock()
	if err == nil {
		err = c.attempted(ctx)
	}
	return got, err
}

// machineClient returns the id of a client that somebody has registered.
func (c *Credential) machineClient() string {
	if c.o.ClientID != "" {
		return c.o.ClientID
	}
	return c.o.Document
}

// begin makes a credential without tokens. A key of proofs is kept.
func (c *Credential) begin(s *site, w serverDemands, old tokenstore.Credential, scopes []string) (tokenstore.Credential, error) {
	next := tokenstore.Credential{
		Server: c.o.Server, Profile: c.o.Profile, Issuer: s.Server.Issuer, TokenEndpoint: s.Server.Token,
		RevocationEndpoint: s.Server.Revocation, Resource: c.resource(s), Asked: scopes,
	}
	if !c.isBound(s, w) {
		return next, nil
	}
	if next.DPoPKey = old.DPoPKey; next.DPoPKey.IsZero() {
		var err error
		if next.DPoPKey, err = newKey(); err != nil {
			return next, err
		}
	}
	return next, nil
}
