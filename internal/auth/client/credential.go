package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// Waits and bounds.
const (
	lockTimeout           = 30 * time.Second // for the lock of the credential
	requestTimeout        = 30 * time.Second // for one token request
	maxRenewAhead         = 5 * time.Minute  // how long before its end a token is renewed, at most
	renewLifetimeFraction = 12               // and at most this part of its life: of an hour 5 minutes
	minRenewPause         = time.Second      // after a renewal that failed; it doubles
	maxRenewPause         = 5 * time.Minute

	maxRetryAfter = 15 * time.Minute // a server that names a longer one is asked again all the same
)

// A Credential is one stored identity at one server. It is shared by every Transport of this process,
// and through the store by every process. It may be used concurrently. Close ends it.
type Credential struct {
	o      Options
	key    tokenstore.Key
	server string // where its metadata is looked for
	origin origin
	caller *auth.Caller
	random func() float64 // for jitter

	requestCtx     context.Context // a token request may go on
	cancelRequests context.CancelFunc
	lockWaitCtx    context.Context // a wait for the lock may go on
	cancelLockWait context.CancelFunc
	renewals       sync.WaitGroup
	challengeTurn  chan struct{} // held by who answers a challenge

	current     atomic.Pointer[snapshot] // nil: nothing is known to be stored
	foundNoneAt atomic.Int64             // when that was read last, in Unix nanoseconds

	mu           sync.Mutex
	closed       bool
	renewing     *renewal  // nil: no renewal is under way
	refusedToken *snapshot // its access token was refused with 401; nil: none was
	renewPause   pause
	// unrenewable is a credential whose renewal would not help, since unrenewableAt.
	unrenewable   tokenstore.Generation
	unrenewableAt time.Time
	// foundNoEndpointsAt is when a server without metadata was found to have none of the assumed endpoints.
	foundNoEndpointsAt time.Time
	prover             *auth.Prover      // of proverOf
	keyText            tokenstore.Secret // the key of prover
	unsaved            *unsaved          // nil: all is stored
}

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

// A pause keeps renewals apart that fail.
type pause struct {
	until      time.Time
	failures   int
	err        error
	generation tokenstore.Generation
}

// An unsaved credential is one that the issuer has given, and the disk did not take.
type unsaved struct {
	credential tokenstore.Credential
	replaces   tokenstore.Generation
}

// A renewal is one renewal, for all who wait for it.
type renewal struct {
	done   chan struct{}
	result *snapshot
	err    error
}

// Key returns the name under which the credential is stored.
func (c *Credential) Key() tokenstore.Key { return c.key }

// Server returns the URL of the MCP server.
func (c *Credential) Server() string { return c.o.Server }

// now is the wall clock.
func (c *Credential) now() time.Time { return c.o.Now().Round(0).UTC() }

// reportError tells of an error that no caller gets.
func (c *Credential) reportError(err error) {
	if c.o.OnError != nil && err != nil {
		c.o.OnError(err)
	}
}

// Close ends the waits for the lock, and waits for a token request that is under way: its answer
// may be a pair of tokens that replaces the stored one. When ctx is done it gives that up.
func (c *Credential) Close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancelLockWait()
	done := make(chan struct{})
	go func() {
		c.renewals.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	c.cancelRequests()
	<-done
}

// Token returns the token to use now. An empty one: nothing is stored, and the server's challenge
// decides what comes next. A token that is due is renewed once for all who use it; as long as it is
// valid nobody waits for that, and while that fails the old one is returned until the server
// refuses it.
func (c *Credential) Token(ctx context.Context) (auth.Token, error) {
	h, err := c.usableSnapshot(ctx)
	if h == nil || err != nil {
		return auth.Token{}, err
	}
	return h.token(), nil
}

func (h *snapshot) token() auth.Token {
	s := h.stored
	return auth.Token{Access: s.Access.Reveal(), Type: s.TokenType, Scopes: s.GrantedScopes, Expires: s.Expires}
}

// noneCacheTime is how long it counts that nothing is stored.
const noneCacheTime = time.Second

// usableSnapshot returns what Token does. nil: nothing is stored.
func (c *Credential) usableSnapshot(ctx context.Context) (*snapshot, error) {
	h := c.current.Load()
	if h != nil && !h.unsaved && !h.isDue(c.now()) && !c.isRefused(h) {
		return h, nil
	}
	if h == nil {
		// A server that wants no token gets one request after the other. If it wants one by now, its
		// challenge has the store read again.
		if since := c.now().UnixNano() - c.foundNoneAt.Load(); 0 <= since && since < int64(noneCacheTime) {
			return nil, nil
		}
	}
	got, err := c.loadUsable(ctx, h)
	if _, stored := errors.AsType[*tokenstore.Error](err); stored && h == nil {
		c.reportError(err) // the server may want no credential; if it does, its 401 brings the error
		return nil, nil
	}
	return got, err
}

// isDue reports whether the token should be renewed.
func (h *snapshot) isDue(now time.Time) bool { return !h.renewAt.IsZero() && !now.Before(h.renewAt) }

// isExpired reports whether the token has ended by its own word.
func (h *snapshot) isExpired(now time.Time) bool {
	return !h.stored.Expires.IsZero() && !now.Before(h.stored.Expires)
}

func (c *Credential) isRefused(h *snapshot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusedToken != nil && h.sameToken(c.refusedToken)
}

// noteRefused notes that the server does not take the access token of h.
func (c *Credential) noteRefused(h *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusedToken = h
}

// sameToken reports whether two credentials have one access token, and not two that are alike: what is stored also changes
// when a refresh token is given up.
func (h *snapshot) sameToken(o *snapshot) bool {
	return h.stored.Access.Equal(o.stored.Access) && h.stored.Issued.Equal(o.stored.Issued) && !h.stored.Access.IsZero()
}

// mayReplace reports whether h may be tried in the place of old, which did not do; nil: a request without a token.
func (c *Credential) mayReplace(h, old *snapshot) bool {
	return h != nil && !h.stored.Access.IsZero() && !c.isRefused(h) && (old == nil || !h.sameToken(old))
}

// loadUsable is usableSnapshot for what is not simply at hand.
func (c *Credential) loadUsable(ctx context.Context, h *snapshot) (*snapshot, error) {
	if h == nil || !h.unsaved {
		var err error
		if h, err = c.readStore(ctx); err != nil || h == nil {
			return h, err
		}
	}
	refused, now := c.isRefused(h) || h.stored.Access.IsZero(), c.now()
	if !refused && !h.isDue(now) && !h.unsaved {
		return h, nil
	}
	if !c.isRenewable(h) {
		if refused {
			return nil, nil // without a token the server says what it wants
		}
		return h, nil
	}
	if err, paused := c.pausedFor(h.generation, now); paused {
		if refused {
			return nil, err
		}
		return h, nil
	}
	f, err := c.beginRenewal(h)
	if err != nil || !refused && !h.isExpired(now) {
		return h, nil // still valid: nobody waits
	}
	got, err := f.wait(ctx)
	if err != nil && !refused && ctx.Err() == nil {
		return h, nil // the server decides; its challenge says what it wants
	}
	return got, err
}

// isRenewable reports whether there is something to ask for a new token with.
func (c *Credential) isRenewable(h *snapshot) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := c.now().Sub(c.unrenewableAt); c.unrenewable == h.generation && c.unrenewable != 0 && since >= 0 && since < maxRenewPause {
		return false
	}
	return c.o.Machine != nil || !h.stored.Refresh.IsZero() || h.unsaved
}

// readStore reads the store, and returns what is there; nil: nothing.
func (c *Credential) readStore(ctx context.Context) (*snapshot, error) {
	e, err := c.o.Store.Load(ctx, c.key)
	if errors.Is(err, tokenstore.ErrBroken) { // it was set aside, and is told once
		c.reportError(err)
		e, err = c.o.Store.Load(ctx, c.key)
	}
	if err != nil {
		return nil, err
	}
	return c.makeCurrent(e)
}

// makeCurrent makes what was read the current credential; nil: nothing usable is stored.
func (c *Credential) makeCurrent(e tokenstore.Entry) (*snapshot, error) {
	if e.Generation == 0 || e.Credential.Access.IsZero() && e.Credential.Refresh.IsZero() {
		c.current.Store(nil)
		c.foundNoneAt.Store(c.now().UnixNano())
		return nil, nil
	}
	c.foundNoneAt.Store(0)
	if h := c.current.Load(); h != nil && h.generation == e.Generation && !h.unsaved {
		return h, nil
	}
	h, err := c.newSnapshot(e)
	if err == nil {
		c.current.Store(h)
	}
	return h, err
}

// newSnapshot makes a snapshot of an entry.
func (c *Credential) newSnapshot(e tokenstore.Entry) (*snapshot, error) {
	s := e.Credential
	h := &snapshot{generation: e.Generation, stored: s, authorization: []string{s.TokenType + " " + s.Access.Reveal()}}
	if life := s.Expires.Sub(s.Issued); !s.Expires.IsZero() && !s.Issued.IsZero() && life > 0 {
		ahead := min(life/renewLifetimeFraction, maxRenewAhead)
		h.renewAt = s.Expires.Add(-ahead/2 - time.Duration(c.random()*float64(ahead/2)))
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
	h.prover, err = c.proverOf(s.DPoPKey)
	return h, err
}

// proverOf returns the Prover of a stored key, which keeps its nonces while the key is the same.
func (c *Credential) proverOf(text tokenstore.Secret) (*auth.Prover, error) {
	if text.IsZero() {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prover != nil && c.keyText.Equal(text) {
		return c.prover, nil
	}
	key, err := parseProofKey(text)
	if err != nil {
		return nil, err
	}
	p, err := auth.NewProver(key, c.o.Now)
	if err == nil {
		c.prover, c.keyText = p, text
	}
	return p, err
}

// parseProofKey reads a stored key of proofs.
func parseProofKey(text tokenstore.Secret) (*ecdsa.PrivateKey, error) {
	if der, err := base64.StdEncoding.DecodeString(text.Reveal()); err == nil {
		if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
			if key, ok := key.(*ecdsa.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("the stored key for proofs cannot be used: sign in again")
}

// newProofKey makes a key of proofs, as it is stored.
func newProofKey() (tokenstore.Secret, error) {
	key, err := auth.NewProofKey()
	if err != nil {
		return tokenstore.Secret{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return tokenstore.NewSecret(base64.StdEncoding.EncodeToString(der)), err
}

// Follow reads the store again each time another process changes it, until ctx is done: so a sign-in
// and a sign-out are noticed at once. changed may be nil; signedIn says whether there is a credential.
// It is called by the goroutine that called Follow.
func (c *Credential) Follow(ctx context.Context, changed func(signedIn bool)) error {
	var known tokenstore.Generation
	if h := c.current.Load(); h != nil {
		known = h.generation
	}
	return c.o.Store.Watch(ctx, c.key, known, func(_ tokenstore.Generation, err error) {
		if err != nil {
			c.reportError(err)
			return
		}
		if h := c.current.Load(); h != nil && h.unsaved {
			return // what this process has is newer
		}
		h, err := c.readStore(ctx)
		if err != nil {
			c.reportError(err)
			return
		}
		if changed != nil {
			changed(h != nil)
		}
	})
}
