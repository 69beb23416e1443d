package bridge

import "context"

type principalKey struct{}

// WithPrincipal returns ctx for the service of a client who has authenticated
// under name; "" is everybody who has not. Listening transports do it before
// they call a Handler.
func WithPrincipal(ctx context.Context, name string) context.Context {
	if name == "" {
		return ctx
	}
	return context.WithValue(ctx, principalKey{}, name)
}

// Principal returns the name in ctx, "" if there is none.
func Principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return name
}
