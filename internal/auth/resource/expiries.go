package resource

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// When streams end.
const (
	expiryStep        = 15 * time.Second // ends are rounded up to this
	assumedLifetime   = time.Hour        // of a token that does not say when it expires
	maxStreamLifetime = 24 * time.Hour   // then a stream ends, however long its token is valid; its client can resume it
)

// clockCheckInterval is how often it is looked whether the clock has come to the end of a token in another way than by time passing: timers
// stand still while the machine sleeps, and know nothing of a clock that is set.
const clockCheckInterval = 30 * time.Second

// tokenExpiries makes the contexts that are done when tokens have expired. All tokens that end in the same 15
// seconds share one, so that there are few, however often a token is verified. One timer is for all of them.
type tokenExpiries struct {
	now func() time.Time // the wall clock

	mu           sync.Mutex
	bySecond     map[int64]expiry // by the second at which it is over, in Unix time
	timer        *time.Timer      // nil: it was never needed
	timerFiresAt time.Time        // when it fires, by the clock of timers; zero: it does not
	closed       bool
}

// An expiry is the context that tokens share.
type expiry struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// contextUntil returns a context that is done 30 to 45 seconds after expires, up to 30 seconds later if the machine sleeps then. expires
// counts as assumedLifetime from now if it is zero, and as maxStreamLifetime from now if it is later than that.
func (e *tokenExpiries) contextUntil(expires time.Time) context.Context {
	now := e.now()
	if expires.IsZero() {
		expires = now.Add(assumedLifetime)
	}
	if last := now.Add(maxStreamLifetime); expires.After(last) {
		expires = last
	}
	const step = int64(expiryStep / time.Second)
	second := (expires.Add(maxClockSkew).Unix() + step - 1) / step * step
	e.mu.Lock()
	defer e.mu.Unlock()
	if x, ok := e.bySecond[second]; ok {
		return x.ctx
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	wait := time.Unix(second, 0).Sub(now)
	if wait <= 0 {
		cancel(access.ErrExpired)
		return ctx
	}
	if e.bySecond == nil {
		e.bySecond = map[int64]expiry{}
	}
	e.bySecond[second] = expiry{ctx, cancel}
	e.armTimerLocked(wait)
	return ctx
}

// armTimerLocked has the timer fire after this time at the latest. mu is held.
func (e *tokenExpiries) armTimerLocked(wait time.Duration) {
	wait = min(wait, clockCheckInterval)
	at := time.Now().Add(wait)
	switch {
	case e.closed || !e.timerFiresAt.IsZero() && !at.Before(e.timerFiresAt):
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(wait, e.cancelExpired)
	default:
		e.timer.Reset(wait)
	}
	e.timerFiresAt = at
}

// cancelExpired ends what has expired by now. The timer calls it.
func (e *tokenExpiries) cancelExpired() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timerFiresAt = time.Time{}
	next := clockCheckInterval
	for second, x := range e.bySecond {
		if wait := time.Unix(second, 0).Sub(e.now()); wait > 0 {
			next = min(next, wait)
			continue
		}
		delete(e.bySecond, second)
		x.cancel(access.ErrExpired)
	}
	if len(e.bySecond) > 0 {
		e.armTimerLocked(next)
	}
}

func (e *tokenExpiries) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed = true; e.timer != nil {
		e.timer.Stop()
	}
	clear(e.bySecond)
}
