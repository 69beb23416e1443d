package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// AwaitFirst returns a Handler that serves a client with h once it has said
// something, and is done with one that says nothing for d: a connection alone
// must not keep a server running, nor others out (Unused).
func AwaitFirst(h Handler, d time.Duration) Handler {
	return HandlerFunc(func(ctx context.Context, conn Conn) error {
		client := Pull(conn)
		first, cancel := context.WithTimeout(ctx, d)
		used := Unused(ctx)
		m, err := client.Recv(first)
		used()
		silent := first.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return h.ServeConn(ctx, Push(Unread(client, m)))
		case silent && errors.Is(err, context.DeadlineExceeded):
			return nil // nothing has gone wrong
		}
		return err
	})
}

// Unread returns c with messages that were received from it already, which
// Recv returns first, also if its ctx is done. Nobody may be in Recv, or use c
// itself afterwards.
//
// A Conn that can take them back itself has a method Unread(...jsonrpc.Message).
func Unread(c PullConn, early ...jsonrpc.Message) PullConn {
	if t, ok := c.(interface{ Unread(...jsonrpc.Message) }); ok {
		t.Unread(early...)
		return c
	}
	u := &unread{PullConn: c, early: early}
	u.from, _ = c.(Offerer)
	return u
}

type unread struct {
	PullConn
	from  Offerer // Conn; nil: it is none
	early []jsonrpc.Message
}

func (u *unread) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if len(u.early) > 0 {
		m := u.early[0]
		u.early[0] = jsonrpc.Message{} // its bytes are not kept
		u.early = u.early[1:]
		return m, nil
	}
	return u.PullConn.Recv(ctx)
}

// Offer is what Offer says.
func (u *unread) Offer(ctx context.Context, take Taker) (jsonrpc.Message, error) {
	if len(u.early) > 0 || u.from == nil || take == nil {
		return u.Recv(ctx)
	}
	return u.from.Offer(ctx, take)
}

// TrySender passes on what the Conn has.
func (u *unread) TrySender() func(jsonrpc.Message) bool { return TrySender(u.PullConn) }

// HungUp passes on what the Conn knows.
func (u *unread) HungUp() func() error { return HungUp(u.PullConn) }

// SendsItself passes on what the Conn says.
func (u *unread) SendsItself() bool { return SendsItself(u.PullConn) }

// CloseFor passes on why the Conn is closed, to one that can say it.
func (u *unread) CloseFor(err error) error { return closeFor(u.PullConn, err) }
