package httpdial

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// progressKey is the key of a ctx for a progress function.
type progressKey struct{}

// WithProgress returns a ctx for a request to the server, with a function that tells the client, in words, why the answer takes so
// long. The function may wait for the client, until ctx is done.
func WithProgress(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// ProgressOf returns the function that WithProgress has put into ctx; nil: there is none, so no client is told.
func ProgressOf(ctx context.Context) func(text string) {
	tell, _ := ctx.Value(progressKey{}).(func(string))
	return tell
}

// progressStep is by how much the progress grows with each notification of the bridge's own: it must grow with each notification, also
// with the server's first one, which comes after them and mostly begins with 0 or 1.
const progressStep = 1e-9

// progressCount counts the bridge's own progress notifications, to all clients: so the progress of a request grows also where it waits
// more than once, each time in another part of the bridge.
var progressCount atomic.Int64

// ProgressTeller returns a function for WithProgress that tells the client of the request m: it gives deliver a notification of
// progress each time. nil: m has not asked for progress. related says that the notifications belong to the reply of m (2026-07-28).
// For one m, one goroutine at a time may call such functions.
func ProgressTeller(m jsonrpc.Message, related bool, deliver func(jsonrpc.Message)) func(text string) {
	token := m.ProgressToken()
	if token.IsZero() || m.Kind() != jsonrpc.Request {
		return nil
	}
	return func(text string) {
		progress := float64(progressCount.Add(1)) * progressStep
		params := `{"progressToken":` + token.String() + `,"progress":` + strconv.FormatFloat(progress, 'f', -1, 64) +
			`,"message":` + string(jsonrpc.Quote(text)) + `}`
		n := jsonrpc.NewNotification("notifications/progress", []byte(params))
		if related {
			n = n.WithRelated(m.ID())
		}
		deliver(n)
	}
}
