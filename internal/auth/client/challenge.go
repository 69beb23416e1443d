package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// maxStepUps is how often somebody signs in for the same scopes after a 403. With the first sign-in that makes three attempts.
const maxStepUps = 2

// A challengeResponder answers the 401 and 403 of the server: with another token, or by having somebody sign in. It may be used concurrently.
type challengeResponder struct {
	*credentialBase
	redirect       redirectTarget                              // where browsers come back to: an error says that a client has to be registered with this redirect URI
	record         *serverRecord                               // stores what challenges ask for, and whether the server refuses the token
	registrar      *registrar                                  // gets client ids
	metadataFinder *metadataFinder                             // finds the authorization server
	tokens         *tokenCache                                 // has the current credential
	renewer        *renewer                                    // renews tokens
	signIn         func(context.Context, SignInRequired) error // calls Options.SignIn to get a person to sign in; nil: nobody is asked
	turn           chan struct{}                               // of size 1: full while a request finds out what to do (awaitTurn)
}

// awaitTurn waits until no other request is finding out how to answer a challenge; release lets the next one.
func (r *challengeResponder) awaitTurn(ctx context.Context) (release func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("another request is finding out where to sign in: %w", ctx.Err())
	}
}

// handle401 answers a 401 with the demand d to a request with old; nil: without a token. isJustIssued: the same request was refused with another token before.
// It returns what to try next; nil without an error: nobody can sign in there, and the 401 stands.
func (r *challengeResponder) handle401(ctx context.Context, d auth.Demand, old *credentialSnapshot, isJustIssued bool) (*credentialSnapshot, error) {
	ctx, cancel := r.withSignInTimeout(ctx)
	defer cancel()
	next, reason, err := r.answer401WithoutPerson(ctx, d, old, isJustIssued)
	if next == nil && err == nil {
		next, err = r.signInPerson(ctx, reason, old)
	}
	if errors.Is(err, errNoAuthServer) {
		return nil, nil
	}
	return next, r.explainSignInTimeout(ctx, err)
}

// answer401WithoutPerson returns what to try next after a 401 with demand d to a request with old (nil: without a token), if that is to be had without a
// person. isJustIssued: the same request was refused with another token before. Neither next nor err: a person must sign in, for the reason.
func (r *challengeResponder) answer401WithoutPerson(ctx context.Context, d auth.Demand, old *credentialSnapshot, isJustIssued bool) (next *credentialSnapshot, reason string, err error) {
	release, err := r.awaitTurn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer release()
	now, err := r.tokens.readStore(ctx)
	if err != nil {
		return nil, "", err
	}
	if r.tokens.mayReplace(now, old) {
		return now, "", nil
	}
	if err := r.record.noteDemand(ctx, d, old, false); err != nil {
		return nil, "", err
	}
	s, err := r.discoverAfter401(ctx, d, old)
	if err != nil && (old == nil || ctx.Err() != nil || !auth.Is(err, auth.Unavailable)) {
		return nil, "", err
	}
	moved := old != nil && s != nil && !s.OriginIsAuthServer && !s.hasIssuer(old.credential.Issuer)
	if old != nil && !moved && !isJustIssued && r.options.Machine == nil {
		next, err = r.renewer.replaceRefusedToken(ctx, old)
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
	case r.options.Machine != nil && isJustIssued:
		r.record.noteTokenRefusal(ctx, old, refusesEveryToken)
		return nil, "", &PermanentError{Problem: "the server refuses a token that was just issued", Err: errStatus401}
	case r.options.Machine != nil:
		next, err = r.renewer.signInWithoutPerson(ctx, s, old)
		return next, "", err
	case moved:
		reason = "the server has changed to another authorization server"
	case reason == "" && isJustIssued:
		reason = "the server refuses a token that was just issued"
	case reason == "" && old != nil:
		reason = "the server does not take the stored token any more"
	case reason == "":
		reason = "nobody has signed in to " + r.options.Server
	}
	return nil, reason, r.checkSignInHelps(ctx, d, s, old, moved, isJustIssued, reason)
}

// checkSignInHelps notes that the server refuses the token of old, and returns why a sign-in by a person, for this reason, would be of no use; nil: it may
// help. moved: the server has changed to another issuer. d, old and isJustIssued are those of handle401.
func (r *challengeResponder) checkSignInHelps(ctx context.Context, d auth.Demand, s *discovery, old *credentialSnapshot, moved, isJustIssued bool, reason string) error {
	h := r.tokens.current.Load()
	if old != nil && h != nil && h.hasSameToken(old) {
		r.tokens.noteTokenRefused(old)
		if moved || isJustIssued { // to renew it helps nobody
			r.renewer.markUnrenewable(h.generation)
		}
	}
	w, err := r.record.storedDemands(ctx)
	if err != nil {
		return err
	}
	if h != nil && !moved {
		if r.wouldSignInBeUseless(w, h, d.Scopes) {
			r.record.noteTokenRefusal(ctx, h, refusesNewToken)
			return &PermanentError{Problem: refusesNewToken, Err: fmt.Errorf("%w; once that is mended, run: mcp-bridge login %s", errStatus401, strings.Join(append(r.options.loginFlags(), r.options.Server), " "))}
		}
		r.record.noteTokenRefusal(ctx, h, reason)
	}
	_, err = r.registrar.chooseIDSource(s, r.redirect.uri())
	return err
}

// discoverAfter401 returns what is known of a server that has answered 401 to a request with old, or nil. errNoAuthServer: nothing shows that it has an
// authorization server, so that nobody can sign in.
func (r *challengeResponder) discoverAfter401(ctx context.Context, d auth.Demand, old *credentialSnapshot) (*discovery, error) {
	s, err := r.metadataFinder.discover(ctx, d.ResourceMetadata, old != nil)
	protected := d.ResourceMetadata != "" || s != nil && s.Resource.Resource != "" // also if the rest is wrong
	if err != nil {
		s = nil
	}
	if old == nil && !protected && (auth.Is(err, auth.Invalid) || err == nil && !r.metadataFinder.canSignIn(ctx, s)) {
		if s != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("registering at %s: %w", s.AuthServer.Issuer, ctx.Err())
		}
		r.reportError(err)
		return nil, errNoAuthServer
	}
	return s, err
}

// handle403 answers a 403 with insufficient_scope to a request with old (nil: without a token): a token is got anew, for all scopes so far and those that the
// server names in d (the specification's step-up authorization flow). It returns what to try next; if there is nothing, the error says why.
func (r *challengeResponder) handle403(ctx context.Context, d auth.Demand, old *credentialSnapshot) (*credentialSnapshot, error) {
	ctx, cancel := r.withSignInTimeout(ctx)
	defer cancel()
	next, err := r.answer403InTurn(ctx, d, old)
	if next == nil && err == nil {
		next, err = r.signInPerson(ctx, fmt.Sprintf("the server wants more rights: %.200s", auth.JoinScope(d.Scopes)), old)
	}
	return next, r.explainSignInTimeout(ctx, err)
}

// answer403InTurn notes the scopes that a 403 with demand d to a request with old demands, and gets a token with them if that needs no person, or returns
// another credential that is stored by now. nil without an error: a person must sign in.
func (r *challengeResponder) answer403InTurn(ctx context.Context, d auth.Demand, old *credentialSnapshot) (*credentialSnapshot, error) {
	release, err := r.awaitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	now, err := r.tokens.readStore(ctx)
	if err != nil {
		return nil, err
	}
	if old != nil && r.tokens.mayReplace(now, old) {
		return now, nil
	}
	if err := r.record.noteDemand(ctx, d, old, true); err != nil {
		return nil, err
	}
	w, err := r.record.storedDemands(ctx)
	if err != nil {
		return nil, err
	}
	if w.StepUpsByScopes[scopeKey(w.Scopes)] >= maxStepUps && w.countRecentSignIns(r.now(), stepUpWindow) > 0 {
		return nil, &PermanentError{Problem: "the server wants more rights than signing in brings; whoever runs its identity provider has to allow them for you and this client", Err: fmt.Errorf("it still wants %.200q after %d attempts", d.Scopes, maxStepUps+1)}
	}
	s, err := r.metadataFinder.discover(ctx, d.ResourceMetadata, false)
	if err != nil || r.options.Machine == nil {
		return nil, err
	}
	return r.renewer.signInWithoutPerson(ctx, s, old)
}

// signInPerson has a person sign in for the reason, and returns the credential that this has brought, or one that is there already in the place of old. Without
// Options.SignIn, or if no other credential is stored after it, the error is a SignInRequired; after too many sign-ins (maxRecentSignIns) a PermanentError.
func (r *challengeResponder) signInPerson(ctx context.Context, reason string, old *credentialSnapshot) (*credentialSnapshot, error) {
	need := r.signInRequired(reason)
	now, err := r.tokens.readStore(ctx)
	switch {
	case err != nil:
		return nil, err
	case r.tokens.mayReplace(now, old):
		return now, nil // somebody was quicker
	case now != nil:
		need.TriedGeneration = now.generation
	}
	if r.signIn == nil {
		return nil, need
	}
	if w, err := r.record.storedDemands(ctx); err != nil {
		return nil, err
	} else if n := w.countRecentSignIns(r.now(), signInWindow); n >= maxRecentSignIns {
		return nil, &PermanentError{Problem: "the server asks for a sign-in again and again", Err: fmt.Errorf("there were %d in the last %v, and it still says: %s; ask its operator, or sign in by hand", n, signInWindow, reason)}
	}
	if err := r.signIn(ctx, *need); err != nil {
		return nil, err
	}
	h, err := r.tokens.readStore(ctx)
	if err == nil && !r.tokens.mayReplace(h, old) {
		return nil, need
	}
	return h, err
}
