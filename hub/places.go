package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// places bounds how many of something there are at once. Who finds none left
// waits in a queue, first come, first served; the queue is bounded too, and so
// is the wait. A nil *places has room for all.
type places struct {
	max   int           // places; 0 or less: no bound
	queue int           // who may wait for one
	wait  time.Duration // and for how long
	flag  string        // what to change if that is too little

	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // each is closed when its place is there
}

// take returns when there is a place, or why there is none.
func (p *places) take(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	if p.max <= 0 || p.taken < p.max {
		p.taken++
		p.mu.Unlock()
		return nil
	}
	if len(p.waiting) >= p.queue {
		p.mu.Unlock()
		return fmt.Errorf("%w: %d servers run, which is the limit (%s), and %d clients wait already", bridge.ErrBusy, p.max, p.flag, p.queue)
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()

	wait, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	select {
	case <-turn:
		return nil
	case <-wait.Done():
	}
	p.mu.Lock()
	i := slices.Index(p.waiting, turn)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it came at this very moment
		p.leave()
	}
	if ctx.Err() == nil && errors.Is(wait.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %d servers run, which is the limit (%s), and none has ended for %v", bridge.ErrBusy, p.max, p.flag, p.wait)
	}
	return ctx.Err()
}

// full reports whether who takes a place has to wait.
func (p *places) full() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.max > 0 && p.taken >= p.max
}

// resize changes the number of places. Those who have one keep it.
func (p *places) resize(max int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.max = max
	for len(p.waiting) > 0 && (max <= 0 || p.taken < max) {
		p.taken++
		p.next()
	}
}

// next lets the one in who waits longest.
func (p *places) next() {
	close(p.waiting[0])
	p.waiting = slices.Delete(p.waiting, 0, 1)
}

// leave gives a place to the one who waits longest, or back.
func (p *places) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 || p.max > 0 && p.taken > p.max {
		p.taken--
		return
	}
	p.next()
}

// admit takes a place of each, in order.
func admit(all ...*places) bridge.Admit {
	return func(ctx context.Context) (leave func(), err error) {
		for i, p := range all {
			if err := p.take(ctx); err != nil {
				for _, taken := range all[:i] {
					taken.leave()
				}
				return nil, err
			}
		}
		return func() {
			for _, p := range all {
				p.leave()
			}
		}, nil
	}
}
