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
	name string

	// token is done when the token is no longer valid, session when the name has no
	// valid token any more. nil: valid for ever.
	token, session context.Context
}

// WithPrincipal returns r with the name of its sender, for Principal.
func WithPrincipal(r *http.Request, name string) *http.Request {
	return with(r, principal{name: name})
}

func with(r *http.Request, p principal) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

// Principal returns the name of the sender of r, which is the name of its token or of its
// TLS certificate. It is "" if the sender is not authenticated. A session belongs to the
// principal that has opened it (LI25, SS4).
func Principal(r *http.Request) string {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return p.name
}

// TokenContext returns a context that is done when the token of r is no longer valid:
// Tokens.Reload has removed it, perhaps because others know it. A connection that was
// opened with the token must end then. The context may outlive r.
func TokenContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.token)
}

// PrincipalContext returns a context that is done when the Principal of r has no valid token
// any more. It is for sessions of several connections, each with its own token: such a
// session must end then. The context may outlive r.
func PrincipalContext(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.session)
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

// sender returns the principal with this name, who has sent a token with this sum. If the
// token was removed in the meantime, the contexts are already done.
func (t *Tokens) sender(name string, sum [sha256.Size]byte) principal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = make(map[string]validity)
		t.sums = make(map[[sha256.Size]byte]validity)
	}
	set := t.set.Load()
	return principal{name, validityContext(t.sums, sum, set.hasSum(sum)), validityContext(t.names, name, set.has(name))}
}

func validityContext[K comparable](of map[K]validity, key K, lasts bool) context.Context {
	s, ok := of[key]
	if !ok {
		s = newValidity()
		if !lasts {
			s.cancel()
			return s.ctx
		}
		of[key] = s
	}
	return s.ctx
}

// endInvalid cancels and removes each validity whose key is no longer valid.
func endInvalid[K comparable](of map[K]validity, lasts func(K) bool) {
	for key, s := range of {
		if !lasts(key) {
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
	endInvalid(t.names, set.has)
	endInvalid(t.sums, set.hasSum)
}

func (s *tokenSet) hasSum(sum [sha256.Size]byte) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.sum == sum })
}

func (s *tokenSet) has(name string) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.name == name })
}
