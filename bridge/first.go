package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// AwaitFirst returns a Handler that serves a client with h once it has said
// something, and gives up on one that says nothing for d: a connection alone
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
			return fmt.Errorf("the client has said nothing for %v", d)
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
