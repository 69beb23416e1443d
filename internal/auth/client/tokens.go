package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A credentialSnapshot is a credential as it was read from the store or, if isUnsaved, as the issuer has given it. It does not change, but for isAcceptanceNoted.
type credentialSnapshot struct {
	generation          tokenstore.Generation // its generation in the store; if isUnsaved, the one that it is to replace
	credential          tokenstore.Credential // the credential itself
	renewAt             time.Time             // from then on the next use renews the token; zero: only a 401 does
	prover              *auth.Prover          // makes the DPoP proofs; nil: the token is not bound to a key
	authorizationHeader []string              // the value of the header Authorization
	isUnsaved           bool                  // the credential could not be written to the store, and exists in this process only
	isAcceptanceNoted   atomic.Bool           // the server has accepted the token, and noteTokenAccepted has been called for that
}

// token returns the access token, without the refresh token.
func (h *credentialSnapshot) token() auth.Token {
	s := h.credential
	return auth.Token{AccessToken: s.AccessToken.Reveal(), Type: s.TokenType, Scopes: s.GrantedScopes, Expires: s.ExpiresAt}
}

// isDue reports whether the token should be renewed by now; it may still be valid.
func (h *credentialSnapshot) isDue(now time.Time) bool {
	return !h.renewAt.IsZero() && !now.Before(h.renewAt)
}

// isExpired reports whether the token has expired. It is false if nobody said when it does.
func (h *credentialSnapshot) isExpired(now time.Time) bool {
	return !h.credential.ExpiresAt.IsZero() && !now.Before(h.credential.ExpiresAt)
}

// hasSameToken reports whether two snapshots have the same access token, issued at the same time; the rest may differ. It is false if they have none.
func (h *credentialSnapshot) hasSameToken(o *credentialSnapshot) bool {
	return h.credential.AccessToken.Equal(o.credential.AccessToken) && h.credential.IssuedAt.Equal(o.credential.IssuedAt) && !h.credential.AccessToken.IsZero()
}

// A tokenCache has the credential as this process has read it last, and the token that the server refused last. It may be used concurrently.
type tokenCache struct {
	*credentialBase
	provers *proverCache // has the Prover for tokens that are bound to a key (DPoP)

	current           atomic.Pointer[credentialSnapshot] // what was read last; nil: nothing is known to be stored
	foundStoreEmptyAt atomic.Int64                       // when the store was last found empty, in Unix nanoseconds; 0: it was not, or has a credential by now

	mu              sync.Mutex          // guards refusedSnapshot
	refusedSnapshot *credentialSnapshot // the last credential whose access token the server refused with 401; nil: none was
}

// isRefused reports whether the token of h is the last one that was refused with 401.
func (t *tokenCache) isRefused(h *credentialSnapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusedSnapshot != nil && h.hasSameToken(t.refusedSnapshot)
}

// noteTokenRefused remembers h as the last snapshot whose access token the server refused with 401.
func (t *tokenCache) noteTokenRefused(h *credentialSnapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusedSnapshot = h
}

// mayReplace reports whether a request that failed with old (nil: without a token) may be tried with h: it has another token, not refused. nil h: no.
func (t *tokenCache) mayReplace(h, old *credentialSnapshot) bool {
	return h != nil && !h.credential.AccessToken.IsZero() && !t.isRefused(h) && (old == nil || !h.hasSameToken(old))
}

// readStore reads the store, and makes what is there the current credential; nil: nothing usable is stored, and no credential is current.
func (t *tokenCache) readStore(ctx context.Context) (*credentialSnapshot, error) {
	e, err := t.options.Store.Load(ctx, t.key)
	if errors.Is(err, tokenstore.ErrBroken) { // it was set aside, and is told once
		t.reportError(err)
		e, err = t.options.Store.Load(ctx, t.key)
	}
	if err != nil {
		return nil, err
	}
	return t.makeCurrent(e)
}

// makeCurrent makes e, as read from the store, the current credential, and returns its snapshot; nil: it has neither token, so none is current.
func (t *tokenCache) makeCurrent(e tokenstore.Entry) (*credentialSnapshot, error) {
	if e.Generation == 0 || e.Credential.AccessToken.IsZero() && e.Credential.RefreshToken.IsZero() {
		t.current.Store(nil)
		t.foundStoreEmptyAt.Store(t.now().UnixNano())
		return nil, nil
	}
	t.foundStoreEmptyAt.Store(0)
	if h := t.current.Load(); h != nil && h.generation == e.Generation && !h.isUnsaved {
		return h, nil
	}
	h, err := t.newSnapshot(e)
	if err == nil {
		t.current.Store(h)
	}
	return h, err
}

const (
	maxRenewAhead        = 5 * time.Minute // how long before its end a token is renewed at the earliest, however long its life is
	renewLifetimeDivisor = 12              // a token is due for renewal no earlier than when its life divided by this is left, nor than when maxRenewAhead is left
)

// newSnapshot returns a new snapshot of e, and chooses at random when it is due for renewal. The error: its key for DPoP proofs cannot be used.
func (t *tokenCache) newSnapshot(e tokenstore.Entry) (*credentialSnapshot, error) {
	s := e.Credential
	h := &credentialSnapshot{generation: e.Generation, credential: s, authorizationHeader: []string{s.TokenType + " " + s.AccessToken.Reveal()}}
	if life := s.ExpiresAt.Sub(s.IssuedAt); !s.ExpiresAt.IsZero() && !s.IssuedAt.IsZero() && life > 0 {
		ahead := min(life/renewLifetimeDivisor, maxRenewAhead)
		h.renewAt = s.ExpiresAt.Add(-ahead/2 - time.Duration(t.random()*float64(ahead/2)))
	} else if !s.ExpiresAt.IsZero() {
		h.renewAt = s.ExpiresAt
	}
	if s.AccessToken.IsZero() {
		h.renewAt = time.Unix(1, 0) // there is only a refresh token
	}
	if s.TokenType != auth.SchemeDPoP {
		return h, nil
	}
	var err error
	h.prover, err = t.provers.proverForKey(s.DPoPKey)
	return h, err
}

// followStore reads the store each time another process changes it, until ctx is done, and tells onChange (may be nil) whether there is a credential.
func (t *tokenCache) followStore(ctx context.Context, onChange func(signedIn bool)) error {
	var known tokenstore.Generation
	if h := t.current.Load(); h != nil {
		known = h.generation
	}
	return t.options.Store.WatchGeneration(ctx, t.key, known, func(_ tokenstore.Generation, err error) {
		if err != nil {
			t.reportError(err)
			return
		}
		if h := t.current.Load(); h != nil && h.isUnsaved {
			return // what this process has is newer
		}
		h, err := t.readStore(ctx)
		if err != nil {
			t.reportError(err)
			return
		}
		if onChange != nil {
			onChange(h != nil)
		}
	})
}
