package httpdial

import "context"

// progressKey is the key of a ctx for a progress function.
type progressKey struct{}

// WithProgress returns a ctx for a request, with a function that tells its client why the answer takes so long. It may
// wait for the client, until ctx is done.
func WithProgress(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// ProgressOf returns the function of WithProgress; nil: the client has not asked for that.
func ProgressOf(ctx context.Context) func(text string) {
	tell, _ := ctx.Value(progressKey{}).(func(string))
	return tell
}
