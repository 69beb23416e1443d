package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
)

type principalKey struct{}

// principal is the sender of a request, in the context of the request.
type principal struct {
	name string // "": it is not authenticated

	// tokenCtx is done when the token is no longer valid, sessionCtx when the name has no
	// valid token any more. nil: valid for ever.
	tokenCtx, sessionCtx context.Context
}

// WithPrincipal returns r with the name of its sender, for Principal.
func WithPrincipal(r *http.Request, name string) *http.Request {
	return withPrincipal(r, principal{name: name})
}

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
// outlive r.
func TokenContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.tokenCtx)
}

// PrincipalContext returns a context that is done when the Principal of r has no valid token
// any more. It is for sessions of several connections, each with its own token: such a
// session must end then. The context may outlive r.
func PrincipalContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.sessionCtx)
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// validity is a context that is canceled when a token, or the last token of a name, is
// removed.
type validity struct {
	ctx    context.Context
	cancel context.CancelFunc
}

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

// validityContext returns the context of a key, which endInvalid cancels. It is done already if
// the key is not valid.
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

// endInvalid cancels and removes each validity whose key is no longer valid.
func endInvalid[K comparable](of map[K]validity, valid func(K) bool) {
	for key, s := range of {
		if !valid(key) {
			s.cancel()
			delete(of, key)
		}
	}
}

// replace puts another set in place of the old one.
func (t *Tokens) replace(set *tokenSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set.Store(set)
	endInvalid(t.validityByName, set.hasName)
	endInvalid(t.validityBySum, set.hasSum)
}

func (s *tokenSet) hasSum(sum [sha256.Size]byte) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.sum == sum })
}

func (s *tokenSet) hasName(name string) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.name == name })
}
