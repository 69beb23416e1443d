package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// AwaitFirst returns a Handler that serves a client with h once it has said
// something, and is done with one that says nothing for d: a connection alone
// must not keep a server running.
func AwaitFirst(h Handler, d time.Duration) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		first, cancel := context.WithTimeout(ctx, d)
		m, err := client.Recv(first)
		silent := first.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return h.ServeConn(ctx, &begun{Conn: client, first: &m})
		case silent && errors.Is(err, context.DeadlineExceeded):
			return nil // nothing has gone wrong
		}
		return err
	})
}

// begun is a Conn of which the first message was received already.
type begun struct {
	Conn
	first *jsonrpc.Message // nil: it was handed on
}

func (b *begun) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if m := b.first; m != nil {
		b.first = nil
		return *m, nil
	}
	return b.Conn.Recv(ctx)
}

// CloseFor passes on why the Conn is closed, to one that can say it.
func (b *begun) CloseFor(err error) error { return closeFor(b.Conn, err) }
