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

// expiries makes the contexts that are done when tokens have expired. All tokens that end in the same 15
// seconds share one, so that there are few, however often a token is verified.
type expiries struct {
	now func() time.Time

	mu sync.Mutex
	m  map[int64]expiry // by the second
}

type expiry struct {
	ctx   context.Context
	timer *time.Timer
}

// contextUntil returns a context that is done 30 to 45 seconds after expires.
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
	e.m[second] = expiry{ctx, time.AfterFunc(wait, func() {
		e.mu.Lock()
		delete(e.m, second)
		e.mu.Unlock()
		cancel(access.ErrExpired)
	})}
	return ctx
}

func (e *expiries) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for second, x := range e.m {
		x.timer.Stop()
		delete(e.m, second)
	}
}
