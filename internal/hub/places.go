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

// processLimit bounds how many processes there are at once, and shares them out among
// parties. Who finds none left waits in a queue; the queue is bounded too, and so
// is the wait.
type processLimit struct {
	*limiter.Limiter
	queueTimeout time.Duration
	flag         string // the flag that sets the limit, for errors
}

// newProcessLimit makes max places; 0 is no bound.
func newProcessLimit(max, queue int, wait time.Duration, flag string) *processLimit {
	return &processLimit{limiter.New(limiter.Options{Max: max, Queue: queue, Wait: wait}), wait, flag}
}

// takePlace returns when there is a place, or why there is none.
func (p *processLimit) takePlace(ctx context.Context) (*limiter.Place, error) {
	place, err := p.Acquire(ctx, identity.Party(ctx), admission.HolderOf(ctx))
	switch {
	case errors.Is(err, limiter.ErrFull):
		err = fmt.Errorf("%w: as many servers run as may (%s), and as many clients of %q wait already", bridge.ErrBusy, p.flag, identity.Party(ctx))
	case errors.Is(err, limiter.ErrLate):
		err = fmt.Errorf("%w: as many servers run as may (%s), and none has ended for %v", bridge.ErrBusy, p.flag, p.queueTimeout)
	}
	return place, err
}

// acquireFromLimits takes a place of each, in order, for the Party of ctx.
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
