package remoteconn

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WithProgress returns a ctx for the requests to the server that m needs: what they have to wait for is told as progress
// of m, if m has asked for that. related says that the notification belongs to the reply of m (2026-07-28).
func (b *Base) WithProgress(ctx context.Context, m jsonrpc.Message, related bool) context.Context {
	tell := httpdial.ProgressTeller(m, related, func(n jsonrpc.Message) { _ = b.Deliver(ctx, n) })
	if tell == nil {
		return ctx
	}
	return httpdial.WithProgress(ctx, tell)
}
