package httpdial

import "context"

// unattendedKey is the key of a ctx of Unattended.
type unattendedKey struct{}

// Unattended returns a ctx for a request that the bridge makes by itself, as to renew a session, and for which no
// client waits: nobody is asked to sign in for it.
func Unattended(ctx context.Context) context.Context {
	return context.WithValue(ctx, unattendedKey{}, true)
}

// IsUnattended reports whether ctx is one of Unattended, or made of one.
func IsUnattended(ctx context.Context) bool { return ctx.Value(unattendedKey{}) != nil }
