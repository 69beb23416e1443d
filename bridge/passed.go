package bridge

import "context"

type passedKey struct{}

// WithPassed returns ctx for the service of one request (Exchange) whose bytes
// are counted as long as they are kept: passed is called, by the goroutine that
// serves it, when the server has the request and nobody keeps it any more. If it is
// not called they are kept until the request is answered.
func WithPassed(ctx context.Context, passed func()) context.Context {
	return context.WithValue(ctx, passedKey{}, passed)
}

// passed says that the request of ctx has been passed on to server.
func passed(ctx context.Context, server Conn) {
	if f, ok := ctx.Value(passedKey{}).(func()); ok && !Keeps(server) {
		f()
	}
}

// Keeps reports whether server keeps requests until they are answered, as one does
// that translates them: it may have to send them again. A Conn says so by a method
// Keeps() bool; one that wraps another has a method Unwrap.
func Keeps(server Conn) bool {
	for {
		switch c := server.(type) {
		case interface{ Keeps() bool }:
			return c.Keeps()
		case interface{ Unwrap() Conn }:
			server = c.Unwrap()
		default:
			return false
		}
	}
}
