package remoteconn

import (
	"context"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// progressStep is by how much the progress grows with each word of the bridge's own. It must grow with each
// notification, also with the first one of the server, which comes after them and mostly begins with 0 or 1.
const progressStep = 1e-6

// WithProgress returns a ctx for the requests to the server that m needs: what they have to wait for is told as progress
// of m, if m has asked for that. related says that the notification belongs to the reply of m (2026-07-28).
func (b *Base) WithProgress(ctx context.Context, m jsonrpc.Message, related bool) context.Context {
	token := m.ProgressToken()
	if token.IsZero() || m.Kind() != jsonrpc.Request {
		return ctx
	}
	told := 0
	return httpdial.WithProgress(ctx, func(text string) {
		told++
		params := `{"progressToken":` + token.String() + `,"progress":` + strconv.FormatFloat(float64(told)*progressStep, 'f', -1, 64) +
			`,"message":` + string(jsonrpc.Quote(text)) + `}`
		n := jsonrpc.NewNotification("notifications/progress", []byte(params))
		if related {
			n = n.WithRelated(m.ID())
		}
		_ = b.Deliver(ctx, n)
	})
}
