package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
)

// AwaitFirst returns a Handler that serves a client with h once it has said
// something, and is done with one that says nothing for d: a connection alone
// must not keep a server running, nor others out (Unused).
func AwaitFirst(h Handler, d time.Duration) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		first, cancel := context.WithTimeout(ctx, d)
		used := admission.Unused(ctx)
		_, err := First(first, client)
		used()
		silent := first.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return h.ServeConn(ctx, client)
		case silent && errors.Is(err, context.DeadlineExceeded):
			return nil // nothing has gone wrong
		}
		return err
	})
}
