package sharing

import (
	"context"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Member is a client's Conn to a Server. Close leaves the Server. Receive says why a
// Server has ended that was shut down.
type Member struct {
	bridge.Poller
	server *Server
	single bool // see Pool.Join
	left   atomic.Bool
}

// Unwrap returns the Conn within.
func (m *Member) Unwrap() bridge.PullConn { return m.Poller }

// Recv says why a Server has ended that was shut down.
func (m *Member) Recv(ctx context.Context) (jsonrpc.Message, error) {
	got, err := m.Poller.Recv(ctx)
	return got, m.server.why(err)
}

// Offer is what bridge.Offer says.
func (m *Member) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	got, err := bridge.Offer(ctx, m.Poller, take)
	return got, m.server.why(err)
}

// TrySender passes on what the Conn has.
func (m *Member) TrySender() func(jsonrpc.Message) bool { return bridge.TrySender(m.Poller) }

// Poll does as Recv does.
func (m *Member) Poll() (jsonrpc.Message, error, bool) {
	got, err, ok := m.Poller.Poll()
	return got, m.server.why(err), ok
}

// Close implements bridge.PullConn.
func (m *Member) Close() error {
	err := m.Poller.Close()
	if m.left.CompareAndSwap(false, true) {
		m.server.pool.leave(m.server, m.single)
	}
	return err
}
