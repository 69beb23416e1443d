package admission

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// Holder is who has a place, and can be told to give it up. Its methods may be called
// concurrently and must not wait:
//
//   - Use() (use Use, since time.Time) says whether the place is in use, and since when
//     it is not.
//   - Reclaim() bool makes the Holder give the place back, now or soon. It returns
//     false, and does nothing, if the place is in use again by then.
type Holder = limiter.Holder

// Use says whether a place is in use: Busy, Idle, Spare or Ending.
type Use = limiter.Use

// The values of Use.
const (
	Busy   = limiter.Busy   // something is in progress: the place is not taken away
	Idle   = limiter.Idle   // a client has the place, and nothing is in progress
	Spare  = limiter.Spare  // no client has the place: it is kept for the next one
	Ending = limiter.Ending // the Holder gives the place back by itself soon
)

// AcquirePlaceFunc asks for what one more client, or server process, takes, which counts for the Party of ctx. It may
// wait for that, for as long as ctx lasts at most. leave gives it back: it must be called exactly once, when whoever
// has it has ended. The HolderOf ctx can be told to give it up.
//
// The error, bridge.ErrBusy or one that wraps it, says that there is no place now: an HTTP transport answers 503 with
// Retry-After. Listening transports take an AcquirePlaceFunc as an option, where nil means that everybody is admitted.
type AcquirePlaceFunc func(ctx context.Context) (leave func(), err error)

// holderKey is the key of the Holder in a context.
type holderKey struct{}

// WithHolder returns ctx for a call of an AcquirePlaceFunc: h is to have the place that is asked for, and is told when
// to give it up.
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf returns the Holder of WithHolder for an AcquirePlaceFunc that was called with ctx; nil: nobody can be told
// to give the place up.
func HolderOf(ctx context.Context) Holder {
	h, _ := ctx.Value(holderKey{}).(Holder)
	return h
}

// AcquireProcessPlace asks AcquirePlaceFunc on behalf of the Slot whose Context ctx comes from, unless that has a
// place already. A Handler calls it before it needs a server process of its own. The error is AcquirePlaceFunc's,
// ctx's or bridge.ErrClosing; nil if ctx has no Slot.
func AcquireProcessPlace(ctx context.Context) error {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		return g.acquireProcessPlace(ctx)
	}
	return nil
}

// ReleaseProcessPlace gives back what AcquirePlaceFunc has given the Slot whose Context ctx comes from. A Handler
// calls it when it needs no server process of its own any more. The client keeps its Slot.
func ReleaseProcessPlace(ctx context.Context) {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		g.releaseProcessPlace()
	}
}
