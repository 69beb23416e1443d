package httpdial

import "context"

// tellerKey is the key of a ctx for a teller.
type tellerKey struct{}

// WithTeller returns a ctx for a request, with a function that tells its client why the answer takes so long. It may
// wait for the client, until ctx is done.
func WithTeller(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, tellerKey{}, tell)
}

// TellerOf returns the function of WithTeller; nil: the client has not asked for that.
func TellerOf(ctx context.Context) func(text string) {
	tell, _ := ctx.Value(tellerKey{}).(func(string))
	return tell
}
