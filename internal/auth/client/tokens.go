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

// A snapshot is a credential as it was read. It does not change, but for taken.
type snapshot struct {
	generation    tokenstore.Generation
	stored        tokenstore.Credential
	renewAt       time.Time    // from then on it is renewed when it is used; zero: only after a 401
	prover        *auth.Prover // nil: the token is not bound
	authorization []string     // the value of Authorization
	unsaved       bool         // could not be written: exists in this process only
	taken         atomic.Bool  // the server has taken it, and that was noted
}

func (h *snapshot) token() auth.Token {
	s := h.stored
	return auth.Token{AccessToken: s.Access.Reveal(), Type: s.TokenType, Scopes: s.GrantedScopes, Expires: s.Expires}
}

// isDue reports whether the token should be renewed.
func (h *snapshot) isDue(now time.Time) bool { return !h.renewAt.IsZero() && !now.Before(h.renewAt) }

// isExpired reports whether the token has ended by its own word.
func (h *snapshot) isExpired(now time.Time) bool {
	return !h.stored.Expires.IsZero() && !now.Before(h.stored.Expires)
}

// sameToken reports whether two credentials have one access token, and not two that are alike: what is stored also changes
// when a refresh token is given up.
func (h *snapshot) sameToken(o *snapshot) bool {
	return h.stored.Access.Equal(o.stored.Access) && h.stored.Issued.Equal(o.stored.Issued) && !h.stored.Access.IsZero()
}

// A tokenCache is the credential as this process has read it last, and what the server has said of its token. It may be
// used concurrently.
type tokenCache struct {
	*common
	keys *proofKeys

	current     atomic.Pointer[snapshot] // nil: nothing is known to be stored
	foundNoneAt atomic.Int64             // when that was read last, in Unix nanoseconds

	mu      sync.Mutex
	refused *snapshot // its access token was refused with 401; nil: none was
}

func (t *tokenCache) isRefused(h *snapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused != nil && h.sameToken(t.refused)
}

// noteRefused notes that the server does not take the access token of h.
func (t *tokenCache) noteRefused(h *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = h
}

// mayReplace reports whether h may be tried in the place of old, which did not do; nil: a request without a token.
func (t *tokenCache) mayReplace(h, old *snapshot) bool {
	return h != nil && !h.stored.Access.IsZero() && !t.isRefused(h) && (old == nil || !h.sameToken(old))
}

// readStore reads the store, and returns what is there; nil: nothing.
func (t *tokenCache) readStore(ctx context.Context) (*snapshot, error) {
	e, err := t.o.Store.Load(ctx, t.key)
	if errors.Is(err, tokenstore.ErrBroken) { // it was set aside, and is told once
		t.reportError(err)
		e, err = t.o.Store.Load(ctx, t.key)
	}
	if err != nil {
		return nil, err
	}
	return t.makeCurrent(e)
}

// makeCurrent makes what was read the current credential; nil: nothing usable is stored.
func (t *tokenCache) makeCurrent(e tokenstore.Entry) (*snapshot, error) {
	if e.Generation == 0 || e.Credential.Access.IsZero() && e.Credential.Refresh.IsZero() {
		t.current.Store(nil)
		t.foundNoneAt.Store(t.now().UnixNano())
		return nil, nil
	}
	t.foundNoneAt.Store(0)
	if h := t.current.Load(); h != nil && h.generation == e.Generation && !h.unsaved {
		return h, nil
	}
	h, err := t.newSnapshot(e)
	if err == nil {
		t.current.Store(h)
	}
	return h, err
}

// A token is renewed maxRenewAhead before its end at most, and a twelfth of its life at most: of an hour 5 minutes.
const maxRenewAhead, renewLifetimeFraction = 5 * time.Minute, 12

// newSnapshot makes a snapshot of an entry.
func (t *tokenCache) newSnapshot(e tokenstore.Entry) (*snapshot, error) {
	s := e.Credential
	h := &snapshot{generation: e.Generation, stored: s, authorization: []string{s.TokenType + " " + s.Access.Reveal()}}
	if life := s.Expires.Sub(s.Issued); !s.Expires.IsZero() && !s.Issued.IsZero() && life > 0 {
		ahead := min(life/renewLifetimeFraction, maxRenewAhead)
		h.renewAt = s.Expires.Add(-ahead/2 - time.Duration(t.random()*float64(ahead/2)))
	} else if !s.Expires.IsZero() {
		h.renewAt = s.Expires
	}
	if s.Access.IsZero() {
		h.renewAt = time.Unix(1, 0) // there is only a refresh token
	}
	if s.TokenType != auth.SchemeDPoP {
		return h, nil
	}
	var err error
	h.prover, err = t.keys.proverOf(s.DPoPKey)
	return h, err
}

// follow is Credential.Follow.
func (t *tokenCache) follow(ctx context.Context, changed func(signedIn bool)) error {
	var known tokenstore.Generation
	if h := t.current.Load(); h != nil {
		known = h.generation
	}
	return t.o.Store.Watch(ctx, t.key, known, func(_ tokenstore.Generation, err error) {
		if err != nil {
			t.reportError(err)
			return
		}
		if h := t.current.Load(); h != nil && h.unsaved {
			return // what this process has is newer
		}
		h, err := t.readStore(ctx)
		if err != nil {
			t.reportError(err)
			return
		}
		if changed != nil {
			changed(h != nil)
		}
	})
}
