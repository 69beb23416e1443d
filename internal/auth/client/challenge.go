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

// takeChallengeTurn waits for the turn to answer a challenge: of many requests that are refused at the same time, one
// finds out what to do.
func (c *Credential) takeChallengeTurn(ctx context.Context) (release func(), err error) {
	select {
	case c.challengeTurn <- struct{}{}:
		return func() { <-c.challengeTurn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another request is finding out where to sign in: %w", ctx.Err())
	}
}

// handle401 answers a 401. old is what the request had, nil: nothing. again: old was new a moment ago.
// It returns what to try next; nil without an error: nobody can sign in there, and the 401 is the answer.
func (c *Credential) handle401(ctx context.Context, d auth.Demand, old *snapshot, again bool) (*snapshot, error) {
	ctx, cancel := c.withSignInTimeout(ctx)
	defer cancel()
	next, reason, err := c.answer401WithoutPerson(ctx, d, old, again)
	if next == nil && err == nil {
		next, err = c.signInPerson(ctx, reason, old)
	}
	if errors.Is(err, errNoSignIn) {
		return nil, nil
	}
	return next, c.signInTimeoutError(ctx, err)
}

// answer401WithoutPerson does what needs no person. Without a result and an error, a person must sign in, for the reason.
func (c *Credential) answer401WithoutPerson(ctx context.Context, d auth.Demand, old *snapshot, again bool) (next *snapshot, reason string, err error) {
	release, err := c.takeChallengeTurn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer release()
	now, err := c.readStore(ctx)
	if err != nil {
		return nil, "", err
	}
	if c.mayReplace(now, old) {
		return now, "", nil
	}
	if err := c.noteDemand(ctx, d, old, false); err != nil {
		return nil, "", err
	}
	s, err := c.discoverAfter401(ctx, d, old)
	if err != nil && (old == nil || ctx.Err() != nil || !auth.Is(err, auth.Unavailable)) {
		return nil, "", err
	}
	moved := old != nil && s != nil && !s.OriginIsServer && !s.hasIssuer(old.stored.Issuer)
	if old != nil && !moved && !again && c.o.Machine == nil {
		next, err = c.replaceRefused(ctx, old)
		var required *SignInRequired
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
		return nil, "", &PermanentError{Problem: "the server refuses a token that was just issued", Err: errStatus401}
	case c.o.Machine != nil:
		next, err = c.signInMachine(ctx, s, old)
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
// answer401WithoutPerson.
func (c *Credential) beforeSignIn(ctx context.Context, d auth.Demand, s *discovery, old *snapshot, moved, again bool, reason string) error {
	h := c.current.Load()
	if old != nil && h != nil && h.sameToken(old) {
		c.noteRefused(old)
		if moved || again { // to renew it helps nobody
			c.mu.Lock()
			c.unrenewable, c.unrenewableAt = h.generation, c.now()
			c.mu.Unlock()
		}
	}
	w, err := c.storedDemands(ctx)
	if err != nil {
		return err
	}
	if h != nil && !moved {
		if c.isUseless(w, h, d.Scopes) {
			c.noteRefusal(ctx, h, refusesNew)
			return &PermanentError{Problem: refusesNew, Err: fmt.Errorf("%w; once that is mended, run: mcp-bridge login %s", errStatus401, c.o.Server)}
		}
		c.noteRefusal(ctx, h, reason)
	}
	_, err = c.chooseIDSource(s, c.redirectURI(c.redirectPort()))
	return err
}

// discoverAfter401 returns what is known of a server that has answered 401. errNoSignIn: nothing shows that it has one.
func (c *Credential) discoverAfter401(ctx context.Context, d auth.Demand, old *snapshot) (*discovery, error) {
	s, err := c.discover(ctx, d.ResourceMetadata, old != nil)
	protected := d.ResourceMetadata != "" || s != nil && s.Resource.Resource != "" // also if the rest is wrong
	if err != nil {
		s = nil
	}
	if old == nil && !protected && (auth.Is(err, auth.Invalid) || err == nil && !c.canSignIn(ctx, s)) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("registering at %s: %w", s.Server.Issuer, ctx.Err())
		}
		c.reportError(err)
		return nil, errNoSignIn
	}
	return s, err
}

// noteDemand remembers what a challenge asks for.
func (c *Credential) noteDemand(ctx context.Context, d auth.Demand, old *snapshot, stepUp bool) error {
	w, err := c.storedDemands(ctx)
	if err != nil {
		return err
	}
	before := fmt.Sprint(w)
	if d.ResourceMetadata != "" {
		w.MetadataURL = d.ResourceMetadata
	}
	if d.Bearer || d.DPoP {
		w.DPoP = d.DPoP && !d.Bearer
	}
	if stepUp && old != nil {
		w.Scopes = auth.UnionScope(auth.UnionScope(w.Scopes, old.stored.RequestedScopes), old.stored.GrantedScopes)
	}
	w.Scopes = auth.UnionScope(w.Scopes, d.Scopes)
	if len(w.Scopes) > maxScopes {
		return &PermanentError{Problem: "the server asks for too many rights", Err: fmt.Errorf("its challenges have named %d scopes", len(w.Scopes))}
	}
	w.StepUp = stepUp
	if fmt.Sprint(w) == before {
		return nil
	}
	return c.storeDocument(ctx, demandsDocument, w, time.Time{})
}

// handle403 answers a 403 with insufficient_scope: somebody signs in again, for all scopes so far and
// those that the server names (the specification's step-up authorization flow).
func (c *Credential) handle403(ctx context.Context, d auth.Demand, old *snapshot) (*snapshot, error) {
	ctx, cancel := c.withSignInTimeout(ctx)
	defer cancel()
	next, err := c.answer403InTurn(ctx, d, old)
	if next == nil && err == nil {
		next, err = c.signInPerson(ctx, fmt.Sprintf("the server wants more rights: %.200s", auth.JoinScope(d.Scopes)), old)
	}
	return next, c.signInTimeoutError(ctx, err)
}

func (c *Credential) answer403InTurn(ctx context.Context, d auth.Demand, old *snapshot) (*snapshot, error) {
	release, err := c.takeChallengeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	now, err := c.readStore(ctx)
	if err != nil {
		return nil, err
	}
	if old != nil && c.mayReplace(now, old) {
		return now, nil
	}
	if err := c.noteDemand(ctx, d, old, true); err != nil {
		return nil, err
	}
	w, err := c.storedDemands(ctx)
	if err != nil {
		return nil, err
	}
	if w.StepUps[scopeKey(w.Scopes)] >= maxStepUps && w.recentSignIns(c.now(), stepUpWindow) > 0 {
		return nil, &PermanentError{Problem: "the server wants more rights than signing in brings; whoever runs its identity provider has to allow them for you and this client", Err: fmt.Errorf("it still wants %.200q after %d attempts", d.Scopes, maxStepUps+1)}
	}
	s, err := c.discover(ctx, d.ResourceMetadata, false)
	if err != nil || c.o.Machine == nil {
		return nil, err
	}
	return c.signInMachine(ctx, s, old)
}

// scopeKey names a set of scopes.
func scopeKey(scopes []string) string { return auth.JoinScope(sortedCopy(scopes)) }

// countStepUp counts a sign-in that a 403 was the reason of.
func (c *Credential) countStepUp(ctx context.Context) error {
	w, err := c.storedDemands(ctx)
	if err != nil {
		return err
	}
	now := c.now()
	if w.recentSignIns(now, stepUpWindow) == 0 {
		w.StepUps = nil
	}
	w.SignIns, w.Proven = append(w.SignIns, now), false
	w.SignIns = w.SignIns[max(0, len(w.SignIns)-maxSignIns):]
	if w.StepUp {
		w.StepUps = cloneMap(w.StepUps)
		if len(w.StepUps) >= 32 {
			clear(w.StepUps)
		}
		w.StepUps[scopeKey(w.Scopes)]++
	} else {
		w.StepUps = nil
	}
	return c.storeDocument(ctx, demandsDocument, w, time.Time{})
}

// signInPerson has a person sign in, and returns the credential that comes of it.
func (c *Credential) signInPerson(ctx context.Context, reason string, old *snapshot) (*snapshot, error) {
	need := c.signInRequired(reason)
	now, err := c.readStore(ctx)
	switch {
	case err != nil:
		return nil, err
	case c.mayReplace(now, old):
		return now, nil // somebody was quicker
	case now != nil:
		need.TriedGeneration = now.generation
	}
	if c.o.SignIn == nil {
		return nil, need
	}
	if w, err := c.storedDemands(ctx); err != nil {
		return nil, err
	} else if n := w.recentSignIns(c.now(), signInWindow); n >= maxSignIns {
		return nil, &PermanentError{Problem: "the server asks for a sign-in again and again", Err: fmt.Errorf("there were %d in the last %v, and it still says: %s; ask its operator, or sign in by hand", n, signInWindow, reason)}
	}
	if err := c.o.SignIn(ctx, c, *need); err != nil {
		return nil, err
	}
	h, err := c.readStore(ctx)
	if err == nil && !c.mayReplace(h, old) {
		return nil, need
	}
	return h, err
}

// signInMachine gets the first token, or one with more scopes, without a person.
func (c *Credential) signInMachine(ctx context.Context, s *discovery, old *snapshot) (got *snapshot, err error) {
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
	if _, err := c.chooseIDSource(s, ""); err != nil {
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
	lockCtx, cancel := context.WithTimeout(c.lockWaitCtx, lockTimeout)
	defer cancel()
	w, err := c.storedDemands(ctx)
	if err != nil {
		return nil, err
	}
	err = c.o.Store.WithLock(lockCtx, c.key, func(l *tokenstore.Locked) error {
		e := l.Entry()
		if now, err := c.makeCurrent(e); err != nil {
			return err
		} else if c.mayReplace(now, old) {
			got = now
			return nil
		}
		next, err := c.newStoredCredential(s, w, e.Credential, c.scopesToRequest(s, w, false))
		if err != nil {
			return err
		}
		next.ClientID = c.machineClientID()
		e.Credential = next
		token, err := c.requestToken(l, e)
		if err != nil {
			_, err = c.renewalFailed(l, e, err)
			return err
		}
		got, err = c.saveToken(l, e, token)
		return err
	})
	c.mu.Lock()
	c.pauseAfter(of, err)
	c.mu.Unlock()
	if err == nil {
		err = c.countStepUp(ctx)
	}
	return got, err
}

// machineClientID returns the id of a client that somebody has registered.
func (c *Credential) machineClientID() string {
	if c.o.ClientID != "" {
		return c.o.ClientID
	}
	return c.o.ClientMetadataURL
}

// newStoredCredential makes a credential without tokens. A key of proofs is kept.
func (c *Credential) newStoredCredential(s *discovery, w serverDemands, old tokenstore.Credential, scopes []string) (tokenstore.Credential, error) {
	next := tokenstore.Credential{
		Server: c.o.Server, Profile: c.o.Profile, Issuer: s.Server.Issuer, TokenEndpoint: s.Server.Token,
		RevocationEndpoint: s.Server.Revocation, Resource: c.resourceParam(s), RequestedScopes: scopes,
	}
	if !c.needsDPoP(s, w) {
		return next, nil
	}
	if next.DPoPKey = old.DPoPKey; next.DPoPKey.IsZero() {
		var err error
		if next.DPoPKey, err = newProofKey(); err != nil {
			return next, err
		}
	}
	return next, nil
}
