package httpguard

import (
	"context"
	"net/http"
	"slices"
)

type principalKey struct{}

// principal is what a request's context knows about its sender.
type principal struct {
	name     string
	standing context.Context // nil: for ever
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

// Standing returns a context that is done when there is no token any more for
// the Principal of r: Tokens.Reload has taken its last one away. What the
// principal has open is to end then. It outlives r.
func Standing(r *http.Request) context.Context {
	p, _ := r.Context().Value(principalKey{}).(principal)
	if p.standing == nil {
		return context.Background()
	}
	return p.standing
}

// standing is one principal's, as long as there is a token for it.
type standing struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// standing returns the context of a name, which is done already if there is no
// token for it any more.
func (t *Tokens) standing(name string) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.names[name]
	if !ok {
		s.ctx, s.cancel = context.WithCancel(context.Background())
		if !t.set.Load().has(name) {
			s.cancel()
			return s.ctx
		}
		if t.names == nil {
			t.names = make(map[string]standing)
		}
		t.names[name] = s
	}
	return s.ctx
}

// replace puts another set in place of the old one.
func (t *Tokens) replace(set *tokenSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set.Store(set)
	for name, s := range t.names {
		if !set.has(name) {
			s.cancel()
			delete(t.names, name)
		}
	}
}

func (s *tokenSet) has(name string) bool {
	return slices.ContainsFunc(s.entries, func(e tokenEntry) bool { return e.name == name })
}
