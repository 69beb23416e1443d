package remoteconn

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WithProgress returns a ctx for the requests to the server that m needs: what they have to wait for is told to the client
// as progress of m, if m is a request that has asked for progress. Otherwise it returns ctx. related says that the notifications
// belong to the reply of m (Message.Related), as over Streamable HTTP, where each request has a reply of its own.
func (b *Base) WithProgress(ctx context.Context, m jsonrpc.Message, related bool) context.Context {
	tell := httpdial.ProgressTeller(m, related, func(n jsonrpc.Message) { _ = b.Deliver(ctx, n) })
	if tell == nil {
		return ctx
	}
	return httpdial.WithProgress(ctx, tell)
}
