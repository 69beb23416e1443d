package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
)

// AwaitFirst returns a Handler that waits for a client's first message, and then has h serve the client from that message
// on. For a client that says nothing for d, the Handler returns nil: a connection alone must not keep a server running,
// nor others out (admission.MarkUnused). If the client or ctx ends before, it returns the error of that (First).
func AwaitFirst(h Handler, d time.Duration) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		if silent, err := awaitFirst(ctx, client, d); silent || err != nil {
			return err
		}
		return h.ServeConn(ctx, client)
	})
}

// awaitFirst waits for the client's first message, which stays the first. silent: none has come within d, and nothing
// has gone wrong.
func awaitFirst(ctx context.Context, client Conn, d time.Duration) (silent bool, err error) {
	first, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	used := admission.MarkUnused(ctx)
	_, err = First(first, client)
	used()
	if first.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return true, nil
	}
	return false, err
}
