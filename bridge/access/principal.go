package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
)

// principalKey is the key of the principal in a request's context.
type principalKey struct{}

// principal is what the context of a request says of its sender.
type principal struct {
	name string // its name; "": it is not authenticated

	// tokenCtx is done when the token is no longer valid, sessionCtx when the name has no valid token any more. nil:
	// the token, or the name, stays valid.
	tokenCtx, sessionCtx context.Context
}

// WithPrincipal returns r with name as the name of its sender, for Principal.
func WithPrincipal(r *http.Request, name string) *http.Request {
	return withPrincipal(r, principal{name: name})
}

// withPrincipal returns r with p as what its context says of its sender.
func withPrincipal(r *http.Request, p principal) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

// Principal returns the name of the sender of r, as its token, its TLS certificate or
// Policy.Authenticator says. It is "" if the sender is not authenticated. A session belongs to
// the principal that has opened it (LI25, SS4).
func Principal(r *http.Request) string {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return p.name
}

// TokenContext returns a context that is done when the token of r is no longer valid:
// Tokens.Reload has removed it, perhaps because others know it, or the Authenticator says so
// (ErrExpired). A connection that was opened with the token must end then. The context may
// outlive r. If r has no token it is never done.
func TokenContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.tokenCtx)
}

// PrincipalContext returns a context that is done when the Principal of r has no valid token
// any more. It is for sessions of several connections, each with its own token: such a
// session must end then. The context may outlive r. If r has no token it is never done.
func PrincipalContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.sessionCtx)
}

// orBackground returns ctx, or context.Background() in the place of nil.
func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// validity is the context that says that a token, or a name, is still valid.
type validity struct {
	ctx    context.Context    // done when the token, or the last token of the name, was removed
	cancel context.CancelFunc // ends ctx, because the token, or the last token of the name, was removed (endInvalid)
}

// newValidity returns the validity of what is valid now.
func newValidity() validity {
	ctx, cancel := context.WithCancel(context.Background())
	return validity{ctx, cancel}
}

// principalOf returns the principal with this name, for a request with the token of this sum. If
// the token was removed since lookup has found it, tokenCtx is done already. If the name has no
// token any more, sessionCtx is done too.
func (t *Tokens) principalOf(name string, sum [sha256.Size]byte) principal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.validityByName == nil {
		t.validityByName = make(map[string]validity)
		t.validityBySum = make(map[[sha256.Size]byte]validity)
	}
	set := t.set.Load()
	return principal{name, validityContext(t.validityBySum, sum, set.hasSum(sum)), validityContext(t.validityByName, name, set.hasName(name))}
}

// validityContext returns the context of the validity that of has for key, which it enters if there is none. If valid
// is false, it returns one that is done already.
func validityContext[K comparable](of map[K]validity, key K, valid bool) context.Context {
	s, ok := of[key]
	if !ok {
		s = newValidity()
		if !valid {
			s.cancel()
			return s.ctx
		}
		of[key] = s
	}
	return s.ctx
}

// endInvalid ends and removes each validity in of whose key is no longer valid.
func endInvalid[K comparable](of map[K]validity, valid func(K) bool) {
	for key, s := range of {
		if !valid(key) {
			s.cancel()
			delete(of, key)
		}
	}
}

// replace makes set the tokens that are valid, and ends the contexts of those tokens and names that are valid no more.
func (t *Tokens) replace(set *tokenSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set.Store(set)
	endInvalid(t.validityByName, set.hasName)
	endInvalid(t.validityBySum, set.hasSum)
}

// hasSum reports whether the token with this SHA-256 sum is in the set.
func (s *tokenSet) hasSum(sum [sha256.Size]byte) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.sum == sum })
}

// hasName reports whether a token of this name is in the set.
func (s *tokenSet) hasName(name string) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.name == name })
}
