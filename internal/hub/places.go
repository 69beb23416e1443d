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
// that finds no place free waits in a queue, which is bounded, too.
type processLimit struct {
	*limiter.Limiter        // shares out the places
	flag             string // the flag that sets the limit, for errors
}

// newProcessLimit returns a processLimit with max places (0: no bound), for which queue clients may wait. flag is the flag that sets max,
// for errors.
func newProcessLimit(max, queue int, flag string) *processLimit {
	return &processLimit{limiter.New(limiter.Options{Max: max, Queue: queue}), flag}
}

// queueWait is the one wait of a client for all places that it needs.
type queueWait struct {
	timeout time.Duration // how long it may wait; 0 or less: it does not wait
	began   time.Time     // when it began to wait
}

// left returns how long the client may still wait; 0: it does not wait. A client that has got one place at the
// last moment is not refused as one that may not wait.
func (w queueWait) left() time.Duration {
	if w.timeout <= 0 {
		return 0
	}
	return max(w.timeout-time.Since(w.began), 1)
}

// takePlace takes a place for the party of ctx, and waits in the queue if none is free. The error wraps bridge.ErrBusy if the queue is full
// or the wait is over; otherwise it is that of ctx.
func (p *processLimit) takePlace(ctx context.Context, wait queueWait) (*limiter.Place, error) {
	place, err := p.Acquire(ctx, identity.Party(ctx), admission.HolderOf(ctx), wait.left())
	switch {
	case errors.Is(err, limiter.ErrFull) && wait.timeout <= 0:
		err = fmt.Errorf("%w: as many servers run as may (%s)", bridge.ErrBusy, p.flag)
	case errors.Is(err, limiter.ErrFull):
		err = fmt.Errorf("%w: as many servers run as may (%s), and as many clients of %q wait already", bridge.ErrBusy, p.flag, identity.Party(ctx))
	case errors.Is(err, limiter.ErrLate):
		err = fmt.Errorf("%w: as many servers run as may (%s), and none has ended for %v", bridge.ErrBusy, p.flag, wait.timeout)
	}
	return place, err
}

// acquireFromLimits returns a function that takes a place of each of these limits, in order, for the party of its ctx; its leave gives
// all of them back. It waits for queueTimeout at most for all of them together; 0 or less: it does not wait. If the function cannot have
// one of the places, it gives back those that it has taken, and returns an error.
func acquireFromLimits(queueTimeout time.Duration, all ...*processLimit) admission.AcquirePlaceFunc {
	return func(ctx context.Context) (leave func(), err error) {
		var taken []*limiter.Place
		leave = func() {
			for i := range taken { // who waits for the first may need the last as well
				taken[len(taken)-1-i].Release()
			}
		}
		wait := queueWait{queueTimeout, time.Now()}
		for _, p := range all {
			place, err := p.takePlace(ctx, wait)
			if err != nil {
				leave()
				return nil, err
			}
			taken = append(taken, place)
		}
		return leave, nil
	}
}
