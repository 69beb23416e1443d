package resource

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// When streams end.
const (
	expiryStep      = 15 * time.Second // ends are rounded up to this
	unknownLifetime = time.Hour        // of a token that does not say when it expires
	maxStreamLife   = 24 * time.Hour   // then a stream ends, however long its token is valid; its client can resume it
)

// clockCheck is how often it is looked whether the clock has come to the end of a token in another way than by time passing: timers
// stand still while the machine sleeps, and know nothing of a clock that is set.
const clockCheck = 30 * time.Second

// expiries makes the contexts that are done when tokens have expired. All tokens that end in the same 15
// seconds share one, so that there are few, however often a token is verified. One timer is for all of them.
type expiries struct {
	now func() time.Time // the wall clock

	mu     sync.Mutex
	m      map[int64]expiry // by the second
	timer  *time.Timer      // nil: it was never needed
	due    time.Time        // when it fires, by the clock of timers; zero: it does not
	closed bool
}

type expiry struct {
	ctx context.Context
	end context.CancelCauseFunc
}

// contextUntil returns a context that is done 30 to 45 seconds after expires, up to 30 seconds later if the machine sleeps then.
func (e *expiries) contextUntil(expires time.Time) context.Context {
	now := e.now()
	if expires.IsZero() {
		expires = now.Add(unknownLifetime)
	}
	if last := now.Add(maxStreamLife); expires.After(last) {
		expires = last
	}
	const step = int64(expiryStep / time.Second)
	second := (expires.Add(skew).Unix() + step - 1) / step * step
	e.mu.Lock()
	defer e.mu.Unlock()
	if x, ok := e.m[second]; ok {
		return x.ctx
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	wait := time.Unix(second, 0).Sub(now)
	if wait <= 0 {
		cancel(access.ErrExpired)
		return ctx
	}
	if e.m == nil {
		e.m = map[int64]expiry{}
	}
	e.m[second] = expiry{ctx, cancel}
	e.look(wait)
	return ctx
}

// look has the timer fire after this time at the latest. The lock is held.
func (e *expiries) look(wait time.Duration) {
	wait = min(wait, clockCheck)
	at := time.Now().Add(wait)
	switch {
	case e.closed || !e.due.IsZero() && !at.Before(e.due):
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(wait, e.endExpired)
	default:
		e.timer.Reset(wait)
	}
	e.due = at
}

// endExpired ends what has expired by now.
func (e *expiries) endExpired() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due = time.Time{}
	next := clockCheck
	for second, x := range e.m {
		if wait := time.Unix(second, 0).Sub(e.now()); wait > 0 {
			next = min(next, wait)
			continue
		}
		delete(e.m, second)
		x.end(access.ErrExpired)
	}
	if len(e.m) > 0 {
		e.look(next)
	}
}

func (e *expiries) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed = true; e.timer != nil {
		e.timer.Stop()
	}
	clear(e.m)
}
