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

// A credentialSnapshot is a credential as it was read. It does not change, but for isAcceptanceNoted.
type credentialSnapshot struct {
	generation          tokenstore.Generation
	stored              tokenstore.Credential
	renewAt             time.Time    // from then on it is renewed when it is used; zero: only after a 401
	prover              *auth.Prover // nil: the token is not bound
	authorizationHeader []string     // the value of Authorization
	isUnsaved           bool         // could not be written: exists in this process only
	isAcceptanceNoted   atomic.Bool  // the server has taken it, and that was noted
}

func (h *credentialSnapshot) token() auth.Token {
	s := h.stored
	return auth.Token{AccessToken: s.AccessToken.Reveal(), Type: s.TokenType, Scopes: s.GrantedScopes, Expires: s.ExpiresAt}
}

// isDue reports whether the token should be renewed.
func (h *credentialSnapshot) isDue(now time.Time) bool {
	return !h.renewAt.IsZero() && !now.Before(h.renewAt)
}

// isExpired reports whether the token has ended by its own word.
func (h *credentialSnapshot) isExpired(now time.Time) bool {
	return !h.stored.ExpiresAt.IsZero() && !now.Before(h.stored.ExpiresAt)
}

// hasSameToken reports whether two credentials have one access token, and not two that are alike: what is stored also changes
// when a refresh token is given up.
func (h *credentialSnapshot) hasSameToken(o *credentialSnapshot) bool {
	return h.stored.AccessToken.Equal(o.stored.AccessToken) && h.stored.IssuedAt.Equal(o.stored.IssuedAt) && !h.stored.AccessToken.IsZero()
}

// A tokenCache is the credential as this process has read it last, and what the server has said of its token. It may be
// used concurrently.
type tokenCache struct {
	*credentialBase
	provers *proverCache

	current           atomic.Pointer[credentialSnapshot] // nil: nothing is known to be stored
	foundStoreEmptyAt atomic.Int64                       // when nothing was found in the store, in Unix nanoseconds; 0: something was

	mu              sync.Mutex
	refusedSnapshot *credentialSnapshot // the last one whose access token was refused with 401; nil: none was
}

// isRefused reports whether the token of h is the last one that was refused with 401.
func (t *tokenCache) isRefused(h *credentialSnapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refusedSnapshot != nil && h.hasSameToken(t.refusedSnapshot)
}

// noteTokenRefused notes that the server does not take the access token of h.
func (t *tokenCache) noteTokenRefused(h *credentialSnapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refusedSnapshot = h
}

// mayReplace reports whether h may be tried in the place of old, which did not do; nil: a request without a token.
func (t *tokenCache) mayReplace(h, old *credentialSnapshot) bool {
	return h != nil && !h.stored.AccessToken.IsZero() && !t.isRefused(h) && (old == nil || !h.hasSameToken(old))
}

// readStore reads the store, and returns what is there; nil: nothing.
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

// makeCurrent makes what was read the current credential; nil: nothing usable is stored.
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

// A token is renewed maxRenewAhead before its end at most, and a twelfth of its life at most: of an hour 5 minutes.
const maxRenewAhead, renewLifetimeDivisor = 5 * time.Minute, 12

// newSnapshot makes a snapshot of an entry.
func (t *tokenCache) newSnapshot(e tokenstore.Entry) (*credentialSnapshot, error) {
	s := e.Credential
	h := &credentialSnapshot{generation: e.Generation, stored: s, authorizationHeader: []string{s.TokenType + " " + s.AccessToken.Reveal()}}
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

// followStore is Credential.FollowStore.
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
