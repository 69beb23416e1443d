package httpdial

import "context"

// unattendedKey is the key of a ctx of Unattended.
type unattendedKey struct{}

// Unattended returns a ctx for a request that the bridge makes by itself, as to renew a session, and for which nobody is
// asked to sign in: no client waits for it, or a request of that client's own asks.
func Unattended(ctx context.Context) context.Context {
	return context.WithValue(ctx, unattendedKey{}, true)
}

// IsUnattended reports whether ctx is one of Unattended, or made of one.
func IsUnattended(ctx context.Context) bool { return ctx.Value(unattendedKey{}) != nil }
