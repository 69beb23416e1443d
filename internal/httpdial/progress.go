package httpdial

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// progressKey is the key of a ctx for a progress function.
type progressKey struct{}

// WithProgress returns a ctx for a request, with a function that tells its client why the answer takes so long. It may
// wait for the client, until ctx is done.
func WithProgress(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// ProgressOf returns the function of WithProgress; nil: the client has not asked for that.
func ProgressOf(ctx context.Context) func(text string) {
	tell, _ := ctx.Value(progressKey{}).(func(string))
	return tell
}

// progressStep is by how much the progress grows with each word of the bridge's own: it must grow with each notification, also with the
// first one of the server, which comes after them and mostly begins with 0 or 1.
const progressStep = 1e-9

// progressCount counts these words, to all clients: so the progress of a request grows also where it waits more than once, each time
// in another part of the bridge.
var progressCount atomic.Int64

// ProgressTeller returns a function for WithProgress that tells the client of m, in notifications that deliver is given; nil: m has not
// asked for progress. related says that they belong to the reply of m (2026-07-28). For one m, one goroutine at a time may call such functions.
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
