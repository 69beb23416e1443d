package admission

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// Admit asks for a place for one more client, or server process, which counts
// for the Party of ctx. It may wait for one, for as long as ctx lasts at most.
// leave gives the place back, exactly once, when what has it has ended; the
// HolderOf ctx can be told to give it up.
//
// The error, bridge.ErrBusy or one that wraps it, says that there is no place now:
// an HTTP transport answers 503 with Retry-After. Listening transports take an
// Admit as an option, where nil means that everybody is admitted.
type Admit func(ctx context.Context) (leave func(), err error)

type holderKey struct{}

// WithHolder returns ctx for an Admit, with what is told to give up the place.
func WithHolder(ctx context.Context, h limiter.Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf returns what has the place that is asked for with ctx, nil if it
// cannot be told to give it up.
func HolderOf(ctx context.Context) limiter.Holder {
	h, _ := ctx.Value(holderKey{}).(limiter.Holder)
	return h
}

// TakePlace asks Admit for a place for the Slot whose Context ctx comes from,
// unless it has one: a Handler does it before it needs a server process of its
// own. The error is Admit's.
func TakePlace(ctx context.Context) error {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		return g.take(ctx)
	}
	return nil
}

// ReleasePlace gives back what Admit gave to the Slot whose Context ctx comes
// from: a Handler does it that needs it no more. The Slot stays.
func ReleasePlace(ctx context.Context) {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		g.giveBack()
	}
}
