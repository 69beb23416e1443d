package httpdial

import (
	"context"
	"strconv"

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

// By how much the progress grows with each word of the bridge's own: it must grow with each notification, also with the first
// one of the server, which comes after them and mostly begins with 0 or 1.
const (
	EarlyProgressStep = 1e-9 // before it is known what the server speaks
	ProgressStep      = 1e-6 // after that
)

// ProgressTeller returns a function for WithProgress that tells the client of m, in notifications that deliver is given; nil: m has not
// asked for progress. related says that they belong to the reply of m (2026-07-28). One goroutine at a time may call it.
func ProgressTeller(m jsonrpc.Message, related bool, step float64, deliver func(jsonrpc.Message)) func(text string) {
	token := m.ProgressToken()
	if token.IsZero() || m.Kind() != jsonrpc.Request {
		return nil
	}
	told := 0
	return func(text string) {
		told++
		params := `{"progressToken":` + token.String() + `,"progress":` + strconv.FormatFloat(float64(told)*step, 'f', -1, 64) +
			`,"message":` + string(jsonrpc.Quote(text)) + `}`
		n := jsonrpc.NewNotification("notifications/progress", []byte(params))
		if related {
			n = n.WithRelated(m.ID())
		}
		deliver(n)
	}
}
