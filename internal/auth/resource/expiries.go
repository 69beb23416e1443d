package resource

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// When streams end.
const (
	expiryStep        = 15 * time.Second // contexts end at a multiple of this, rounded up from maxClockSkew after the end of the token; so tokens can share them
	assumedLifetime   = time.Hour        // how long a token counts as valid, for contextUntil, that does not say when it expires
	maxStreamLifetime = 24 * time.Hour   // the longest time until the context of a token ends, however long the token is valid: its client can resume a stream
)

// clockCheckInterval is how often the wall clock is compared with the ends of contexts: timers stand still while the
// machine sleeps, and know nothing of a clock that is set.
const clockCheckInterval = 30 * time.Second

// tokenExpiries makes the contexts that are done when tokens have expired. All tokens that end in the same 15
// seconds share one, so that there are few, however often a token is verified. One timer is for all of them.
type tokenExpiries struct {
	now func() time.Time // returns the time by the wall clock

	mu           sync.Mutex       // guards the fields below
	bySecond     map[int64]expiry // the contexts that are not done, by the second at which they end, in Unix time
	timer        *time.Timer      // calls cancelExpired; nil: it was never needed
	timerFiresAt time.Time        // when the timer fires, by the clock of timers; zero: it does not
	closed       bool             // close was called: the timer is not set any more
}

// An expiry is a context that tokens share which expire at about the same time.
type expiry struct {
	ctx    context.Context         // done at the end of these tokens
	cancel context.CancelCauseFunc // ends ctx
}

// contextUntil returns a context that is done 30 to 45 seconds after expires, up to 30 seconds later if the machine sleeps then.
// expires counts as assumedLifetime from now if it is zero, and as maxStreamLifetime from now if it is later than that. After
// close it ends no context any more.
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

// armTimerLocked makes the timer call cancelExpired when wait has passed, or earlier. mu is held.
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

// cancelExpired ends the contexts whose time has come by the wall clock (access.ErrExpired). The timer calls it.
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

// close stops the timer, and forgets the contexts without ending them.
func (e *tokenExpiries) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed = true; e.timer != nil {
		e.timer.Stop()
	}
	clear(e.bySecond)
}
