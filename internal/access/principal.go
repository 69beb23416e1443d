package access

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
)

type principalKey struct{}

// principal is what a request's context knows about its sender.
type principal struct {
	name string

	// How long they are, nil: for ever.
	standing, session context.Context
}

// WithPrincipal returns r with the name of whoever is behind it, for Principal.
func WithPrincipal(r *http.Request, name string) *http.Request {
	return with(r, principal{name: name})
}

func with(r *http.Request, p principal) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

// Principal returns the name of whoever is behind r: what its token, or its
// TLS certificate, stands for. It is "" when nobody was authenticated. A
// session belongs to the principal that opened it (LI25, SS4).
func Principal(r *http.Request) string {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return p.name
}

// Standing returns a context that is done when the token that r was sent with
// is one no more: Tokens.Reload has taken it away, perhaps because others know
// it. A connection that it has opened is to end then. It outlives r.
func Standing(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.standing)
}

// SessionStanding returns a context that is done when there is no token any more
// for the Principal of r. A session whose connections each have a token of
// their own is to end then. It outlives r.
func SessionStanding(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	return orBackground(p.session)
}

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// standing is that of a token or a name, as long as there is one such.
type standing struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newStanding() standing {
	ctx, cancel := context.WithCancel(context.Background())
	return standing{ctx, cancel}
}

// sender returns what there is to know about who sends a token with this sum.
// What is gone meanwhile is done already.
func (t *Tokens) sender(name string, sum [sha256.Size]byte) principal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = make(map[string]standing)
		t.sums = make(map[[sha256.Size]byte]standing)
	}
	set := t.set.Load()
	return principal{name, stand(t.sums, sum, set.hasSum(sum)), stand(t.names, name, set.has(name))}
}

func stand[K comparable](of map[K]standing, key K, lasts bool) context.Context {
	s, ok := of[key]
	if !ok {
		s = newStanding()
		if !lasts {
			s.cancel()
			return s.ctx
		}
		of[key] = s
	}
	return s.ctx
}

// end ends what does not last.
func end[K comparable](of map[K]standing, lasts func(K) bool) {
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
	end(t.names, set.has)
	end(t.sums, set.hasSum)
}

func (s *tokenSet) hasSum(sum [sha256.Size]byte) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.sum == sum })
}

func (s *tokenSet) has(name string) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.name == name })
}
