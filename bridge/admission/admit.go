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

// Use says whether a place is in use.
type Use = limiter.Use

// The values of Use.
const (
	Busy   = limiter.Busy   // something is in progress: the place is not taken away
	Idle   = limiter.Idle   // a client has the place, and nothing is in progress
	Spare  = limiter.Spare  // no client has the place: it is kept for the next one
	Ending = limiter.Ending // the Holder gives the place back by itself soon
)

// AcquirePlaceFunc asks for a place for one more client, or server process, which counts for the
// Party of ctx. It may wait for one, for as long as ctx lasts at most. leave gives the place
// back: it must be called exactly once, when whoever has the place has ended. The HolderOf ctx
// can be told to give the place up.
//
// The error, bridge.ErrBusy or one that wraps it, says that there is no place now: an HTTP
// transport answers 503 with Retry-After. Listening transports take an AcquirePlaceFunc as an
// option, where nil means that everybody is admitted.
type AcquirePlaceFunc func(ctx context.Context) (leave func(), err error)

type holderKey struct{}

// WithHolder returns ctx for an AcquirePlaceFunc. h has the place that is asked for, and is told
// when to give it up.
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf returns the Holder of the place that is asked for with ctx; nil: nobody can be told
// to give it up.
func HolderOf(ctx context.Context) Holder {
	h, _ := ctx.Value(holderKey{}).(Holder)
	return h
}

// AcquireProcessPlace asks AcquirePlaceFunc for a place for the Slot whose Context ctx comes from,
// unless it has one: a Handler does it before it needs a server process of its
// own. The error is AcquirePlaceFunc's.
func AcquireProcessPlace(ctx context.Context) error {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		return g.acquireProcessPlace(ctx)
	}
	return nil
}

// ReleaseProcessPlace gives back what AcquirePlaceFunc gave to the Slot whose Context ctx comes
// from: a Handler does it that needs it no more. The Slot stays.
func ReleaseProcessPlace(ctx context.Context) {
	if g, ok := HolderOf(ctx).(*Slot); ok {
		g.releaseProcessPlace()
	}
}
