package httpguard

import (
	"context"
	"net/http"
)

type principalKey struct{}

// WithPrincipal returns r with the name of whoever is behind it, for Principal.
func WithPrincipal(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, name))
}

// Principal returns the name of whoever is behind r: what its token, or its
// TLS certificate, stands for. It is "" when nobody was authenticated. A
// session belongs to the principal that opened it (LI25, SS4).
func Principal(r *http.Request) string {
	name, _ := r.Context().Value(principalKey{}).(string)
	return name
}
