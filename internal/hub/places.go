package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
)

// processLimit bounds how many processes there are at once, of one server or of all, and shares these places out among parties. A client
// that finds no place free waits in a queue; the queue is bounded too, and so is the wait.
type processLimit struct {
	*limiter.Limiter               // shares out the places
	queueTimeout     time.Duration // how long a client may wait in the queue; 0 or less: nobody waits
	flag             string        // the flag that sets the limit, for errors
}

// newProcessLimit returns a processLimit with max places (0: no bound), for which queue clients may wait, each for the time wait
// (0 or less: nobody waits). flag is the flag that sets max, for errors.
func newProcessLimit(max, queue int, wait time.Duration, flag string) *processLimit {
	return &processLimit{limiter.New(limiter.Options{Max: max, Queue: queue, Wait: wait}), wait, flag}
}

// takePlace takes a place for the party of ctx, and waits in the queue if none is free. The error wraps bridge.ErrBusy if the queue is full
// or queueTimeout has passed; otherwise it is that of ctx.
func (p *processLimit) takePlace(ctx context.Context) (*limiter.Place, error) {
	place, err := p.Acquire(ctx, identity.Party(ctx), admission.HolderOf(ctx))
	switch {
	case errors.Is(err, limiter.ErrFull) && p.queueTimeout <= 0:
		err = fmt.Errorf("%w: as many servers run as may (%s)", bridge.ErrBusy, p.flag)
	case errors.Is(err, limiter.ErrFull):
		err = fmt.Errorf("%w: as many servers run as may (%s), and as many clients of %q wait already", bridge.ErrBusy, p.flag, identity.Party(ctx))
	case errors.Is(err, limiter.ErrLate):
		err = fmt.Errorf("%w: as many servers run as may (%s), and none has ended for %v", bridge.ErrBusy, p.flag, p.queueTimeout)
	}
	return place, err
}

// acquireFromLimits returns a function that takes a place of each of these limits, in order, for the party of its ctx; its leave gives
// all of them back. If the function cannot have one of the places, it gives back those that it has taken, and returns an error.
func acquireFromLimits(all ...*processLimit) admission.AcquirePlaceFunc {
	return func(ctx context.Context) (leave func(), err error) {
		var taken []*limiter.Place
		leave = func() {
			for i := range taken { // who waits for the first may need the last as well
				taken[len(taken)-1-i].Release()
			}
		}
		for _, p := range all {
			place, err := p.takePlace(ctx)
			if err != nil {
				leave()
				return nil, err
			}
			taken = append(taken, place)
		}
		return leave, nil
	}
}
