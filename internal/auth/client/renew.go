package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// Waits and bounds.
const (
	lockTimeout    = 30 * time.Second // how long one wait for the lock of the credential may take, and what is stored after a sign-in
	requestTimeout = 30 * time.Second // how long one request to an authorization server may take
	minRenewPause  = time.Second      // the longest pause after the first renewal that failed (up to half is left out at random); it doubles with each further one
	maxRenewPause  = 5 * time.Minute  // the longest pause after a renewal that failed, unless Retry-After asks for more; the pause where trying again does not help
	maxRetryAfter  = 15 * time.Minute // the longest Retry-After that is respected; for a longer one, this long
)

// A renewer returns the token to use, and renews it: once for all who use it, with the credential locked against other processes. It may be used concurrently.
// close ends it.
type renewer struct {
	*credentialBase
	tokens    *tokenCache   // has the current credential
	provers   *proverCache  // has the Prover for tokens that are bound to a key (DPoP)
	record    *serverRecord // has the stored metadata and demands of the server, and is told of sign-ins without a person
	registrar *registrar    // has the client's secret or key

	requestCtx     context.Context    // the ctx of token requests: done when close gives up its wait, or ends
	cancelRequests context.CancelFunc // ends requestCtx
	lockWaitCtx    context.Context    // the ctx of waits for the lock: done when close begins
	cancelLockWait context.CancelFunc // ends lockWaitCtx
	runningWork    sync.WaitGroup     // renewals, and sign-ins without a person, under way: close waits for them

	mu                    sync.Mutex            // guards the fields below
	closed                bool                  // close was called: no renewal begins any more
	currentRenewal        *renewal              // the renewal under way; nil: none is
	renewPause            renewalPause          // the pause after the last renewal that failed, or whose credential could not be stored; the zero value: there is none
	unrenewableGeneration tokenstore.Generation // the credential that is not renewed for maxRenewPause from unrenewableAt on, since that would not help; 0: none
	unrenewableAt         time.Time             // when markUnrenewable was last called; the pause of maxRenewPause begins then
	unsavedCredential     *unsavedCredential    // the renewed credential that could not be stored; nil: there is none
}

// newRenewer returns a renewer that has begun no work. The arguments are the other parts of its Credential.
func newRenewer(base *credentialBase, tokens *tokenCache, keys *proverCache, record *serverRecord, clients *registrar) *renewer {
	r := &renewer{credentialBase: base, tokens: tokens, provers: keys, record: record, registrar: clients}
	r.requestCtx, r.cancelRequests = context.WithCancel(context.Background())
	r.lockWaitCtx, r.cancelLockWait = context.WithCancel(r.requestCtx)
	return r
}

// close lets no work begin any more, ends waits for the lock, and waits for the work under way. When ctx is done it cancels the token requests.
func (r *renewer) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancelLockWait()
	stop := context.AfterFunc(ctx, r.cancelRequests)
	r.runningWork.Wait()
	stop()
	r.cancelRequests()
}

// beginWork counts work for which close waits; done says that it has ended. The error is errCredentialClosed.
func (r *renewer) beginWork() (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errCredentialClosed
	}
	r.runningWork.Add(1)
	return r.runningWork.Done, nil
}

// A renewalPause is the time in which no renewal is tried, after one that has failed or whose credential could not be stored.
type renewalPause struct {
	until      time.Time             // when the pause ends
	failures   int                   // how many renewals of this credential have failed in a row
	err        error                 // why the last renewal has failed, or its credential could not be stored; nil: there is no pause
	generation tokenstore.Generation // the generation of the credential that was to be renewed
}

// A renewal is one renewal that is under way, with its result for all who wait for it.
type renewal struct {
	done   chan struct{}       // closed once result and err are there
	result *credentialSnapshot // what to use now; nil without err: nothing usable is stored
	err    error               // why the renewal failed; nil: it did not
}

// emptyStoreCacheTime is how long after the store was found empty it is not read again for a request.
const emptyStoreCacheTime = time.Second

// usableSnapshot returns the credential with the token to use now, and begins a renewal if that is due. It waits for it only if the old token has ended or was
// refused. nil: no usable one is stored.
func (r *renewer) usableSnapshot(ctx context.Context) (*credentialSnapshot, error) {
	h := r.tokens.current.Load()
	if h != nil && !h.isUnsaved && !h.isDue(r.now()) && !r.tokens.isRefused(h) {
		return h, nil
	}
	if h == nil {
		// A server that wants no token gets one request after the other. If it wants one by now, its
		// challenge has the store read again.
		if since := r.now().UnixNano() - r.tokens.foundStoreEmptyAt.Load(); 0 <= since && since < int64(emptyStoreCacheTime) {
			return nil, nil
		}
	}
	got, err := r.loadOrRenew(ctx, h)
	if _, stored := errors.AsType[*tokenstore.Error](err); stored && h == nil {
		r.reportError(err) // the server may want no credential; if it does, its 401 brings the error
		return nil, nil
	}
	return got, err
}

// loadOrRenew reads the store again and renews the token if need be, where h, the current snapshot or nil, cannot simply be used. An unsaved h counts as newer
// than the store. nil: no usable credential is stored.
func (r *renewer) loadOrRenew(ctx context.Context, h *credentialSnapshot) (*credentialSnapshot, error) {
	if h == nil || !h.isUnsaved {
		var err error
		if h, err = r.tokens.readStore(ctx); err != nil || h == nil {
			return h, err
		}
	}
	refused, now := r.tokens.isRefused(h) || h.credential.AccessToken.IsZero(), r.now()
	if !refused && !h.isDue(now) && !h.isUnsaved {
		return h, nil
	}
	if !r.isRenewable(h) {
		if refused {
			return nil, nil // without a token the server says what it wants
		}
		return h, nil
	}
	if err, paused := r.isPaused(h.generation, now); paused {
		if refused {
			return nil, err
		}
		return h, nil
	}
	f, err := r.joinOrBeginRenewal(h)
	if err != nil || !refused && !h.isExpired(now) {
		return h, nil // still valid: nobody waits
	}
	got, err := f.wait(ctx)
	if err != nil && !refused && ctx.Err() == nil {
		return h, nil // the server decides; its challenge says what it wants
	}
	return got, err
}

// isRenewable reports whether there is something to ask for a new token with (or to store), and markUnrenewable was not called for h lately.
func (r *renewer) isRenewable(h *credentialSnapshot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since := r.now().Sub(r.unrenewableAt); r.unrenewableGeneration == h.generation && r.unrenewableGeneration != 0 && since >= 0 && since < maxRenewPause {
		return false
	}
	return r.options.Machine != nil || !h.credential.RefreshToken.IsZero() || h.isUnsaved
}

// joinOrBeginRenewal returns the renewal that is under way, or begins one of h. The error is errCredentialClosed.
func (r *renewer) joinOrBeginRenewal(h *credentialSnapshot) (*renewal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errCredentialClosed
	}
	if r.currentRenewal != nil {
		return r.currentRenewal, nil
	}
	f := &renewal{done: make(chan struct{})}
	r.currentRenewal = f
	r.runningWork.Go(func() {
		f.result, f.err = r.renew(h)
		r.mu.Lock()
		r.currentRenewal = nil
		r.updatePauseLocked(h.generation, f.err)
		r.mu.Unlock()
		close(f.done)
		r.reportError(f.err)
	})
	return f, nil
}

// wait waits for the result of a renewal, or for ctx. A caller that leaves does not end the renewal.
func (f *renewal) wait(ctx context.Context) (*credentialSnapshot, error) {
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the token is being renewed: %w", ctx.Err())
	}
}

// updatePauseLocked begins or lengthens renewPause if err, of a renewal of this generation, is not nil. Else it ends the pause, unless a credential is unsaved.
// r.mu is held.
func (r *renewer) updatePauseLocked(generation tokenstore.Generation, err error) {
	if err == nil {
		if r.unsavedCredential == nil {
			r.renewPause = renewalPause{}
		}
		return
	}
	p := renewalPause{failures: 1, err: err, generation: generation}
	if r.renewPause.err != nil && r.renewPause.generation == generation {
		p.failures = r.renewPause.failures + 1
	}
	wait := min(minRenewPause<<min(p.failures-1, 20), maxRenewPause)
	wait = wait/2 + time.Duration(r.random()*float64(wait/2))
	if e, ok := errors.AsType[*auth.Error](err); ok {
		wait = max(wait, min(e.RetryAfter, maxRetryAfter))
	}
	if !isTransient(err) {
		wait = maxRenewPause
	}
	p.until = r.now().Add(wait)
	r.renewPause = p
}

// isPaused reports whether a renewal of this generation failed so recently that none is tried now, and returns the error of the last one.
func (r *renewer) isPaused(generation tokenstore.Generation, now time.Time) (error, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.renewPause
	until := p.until
	if until.Sub(now) > 24*time.Hour {
		until = now // the clock was set back
	}
	return p.err, p.err != nil && p.generation == generation && now.Before(until)
}

// renew renews the token under the lock of the credential. There it reads the store again, as old may be out of date. It returns what to use now.
func (r *renewer) renew(old *credentialSnapshot) (*credentialSnapshot, error) {
	for try := 1; ; try++ {
		var got *credentialSnapshot
		ctx, cancel := context.WithTimeout(r.lockWaitCtx, lockTimeout)
		err := r.options.Store.WithLock(ctx, r.key, func(l *tokenstore.LockedCredential) (err error) {
			got, err = r.renewLocked(l, old)
			return err
		})
		cancel()
		if errors.Is(err, tokenstore.ErrBroken) && try == 1 {
			r.reportError(err)
			continue // it was set aside
		}
		return got, err
	}
}

// renewLocked renews the token with the lock l held, unless somebody has stored another one since old was read. Before that it stores what is unsaved. It
// returns what to use now.
func (r *renewer) renewLocked(l *tokenstore.LockedCredential, old *credentialSnapshot) (*credentialSnapshot, error) {
	if got, done, err := r.saveUnsaved(l); done {
		return got, err
	}
	e := l.Entry() // what saveUnsaved has stored, too
	if e.Generation == 0 {
		r.tokens.current.Store(nil)
		return nil, r.signInRequired("the credential was deleted")
	}
	if e.Generation != old.generation {
		h, err := r.tokens.makeCurrent(e)
		if err != nil {
			return nil, err
		}
		if h != nil && !h.isDue(r.now()) && !r.tokens.isRefused(h) {
			return h, nil
		}
	}
	if r.options.Machine == nil && (e.Credential.RefreshToken.IsZero() || l.IsRefreshTokenSpent(e.Credential.RefreshToken)) {
		return nil, r.signInRequired("the token has ended, and there is none to renew it with")
	}
	token, err := r.requestToken(l, e)
	if err != nil {
		return r.handleRenewalError(l, e, err)
	}
	return r.saveToken(l, e, token)
}

// handleRenewalError changes what is stored (e) as an error of the token endpoint demands, such as by giving up the refresh token, and returns the error for
// the caller. If somebody has stored another credential meanwhile, it returns that and no error.
func (r *renewer) handleRenewalError(l *tokenstore.LockedCredential, e tokenstore.Entry, err error) (*credentialSnapshot, error) {
	switch {
	case auth.Is(err, auth.InvalidGrant) && r.options.Machine == nil:
		// Somebody who ignores locks may have replaced it meanwhile.
		now, loadErr := r.options.Store.Load(r.requestCtx, r.key)
		if loadErr == nil && now.Generation != e.Generation && !now.Credential.RefreshToken.Equal(e.Credential.RefreshToken) {
			return r.tokens.makeCurrent(now)
		}
		if spendErr := l.MarkRefreshTokenSpent(e.Credential.RefreshToken); spendErr != nil {
			r.reportError(spendErr)
		}
		r.adoptWithoutRefresh(l.Entry())
		return nil, r.signInRequired("the authorization server does not take the refresh token any more")
	case auth.Is(err, auth.InvalidClient):
		if r.forgetClient(e.Credential.Issuer, e.Credential.ClientID) {
			if spendErr := l.MarkRefreshTokenSpent(e.Credential.RefreshToken); spendErr != nil {
				r.reportError(spendErr)
			}
			r.adoptWithoutRefresh(l.Entry())
			return nil, r.signInRequired("the authorization server does not know this client any more")
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

// forgetClient deletes a registration that the issuer does not know any more. false: the Options name the client, and nothing is deleted.
func (r *renewer) forgetClient(issuer, id string) bool {
	ctx, cancel := context.WithTimeout(r.lockWaitCtx, lockTimeout)
	defer cancel()
	return r.registrar.forgetRegistration(ctx, issuer, id)
}

// adoptWithoutRefresh makes e the current credential: the stored one after its refresh token was given up. Its access token may still be valid.
func (r *renewer) adoptWithoutRefresh(e tokenstore.Entry) {
	if _, err := r.tokens.makeCurrent(e); err != nil {
		r.reportError(err)
	}
}

// markUnrenewable notes that a new token would not help: the server refuses one just issued, or has another issuer. For maxRenewPause the credential of this generation is not renewed.
func (r *renewer) markUnrenewable(generation tokenstore.Generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrenewableGeneration, r.unrenewableAt = generation, r.now()
}

// noteRenewalResult begins, lengthens or ends renewPause by err, the result of a renewal of this generation (updatePauseLocked). It takes r.mu.
func (r *renewer) noteRenewalResult(generation tokenstore.Generation, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updatePauseLocked(generation, err)
}

// replaceRefusedToken returns what to use in the place of old, whose token the server refused with 401: what somebody has replaced it with, or a token that is
// asked for now. nil: there is none.
func (r *renewer) replaceRefusedToken(ctx context.Context, old *credentialSnapshot) (*credentialSnapshot, error) {
	if h := r.tokens.current.Load(); r.tokens.mayReplace(h, old) {
		return h, nil
	}
	r.tokens.noteTokenRefused(old)
	h, err := r.loadOrRenew(ctx, nil)
	if h != nil && h.hasSameToken(old) {
		return nil, err
	}
	return h, err
}
