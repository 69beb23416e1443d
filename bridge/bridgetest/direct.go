package bridgetest

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// isDirect reports whether a Conn has more than the methods of all.
func isDirect(c bridge.PullConn) bool {
	_, offers := c.(bridge.Offerer)
	return offers || bridge.TrySender(c) != nil
}

// direct is a Conn whose messages are sent without waiting, if that can be, and
// taken where they come up, but for every third, which is left to Recv.
type direct struct {
	bridge.PullConn
	try func(jsonrpc.Message) bool
	got chan jsonrpc.Message
	n   int // of messages that were offered
}

func newDirect(c bridge.PullConn) *direct {
	return &direct{PullConn: c, try: bridge.TrySender(c), got: make(chan jsonrpc.Message, 1)}
}

func (d *direct) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Invalid && ctx.Err() == nil && d.try != nil && d.try(m) {
		return nil
	}
	return d.PullConn.Send(ctx, m)
}

func (d *direct) Recv(ctx context.Context) (jsonrpc.Message, error) {
	m, err := bridge.Offer(ctx, d.PullConn, func(m jsonrpc.Message, _ bool) (took, more bool) {
		if d.n++; d.n%3 == 0 {
			return false, true
		}
		d.got <- m
		return true, false
	})
	select {
	case m = <-d.got: // and then err is ErrEnough
		return m, nil
	default:
		return m, err
	}
}
