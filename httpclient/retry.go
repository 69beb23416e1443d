package httpclient

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	firstBackoff   = 250 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// Backoff returns how long to wait before attempt n (from 0): it doubles, from
// a quarter of a second up to 30 s, and up to half of it is left to chance, so that
// many clients of a server that comes back do not all come at once.
func Backoff(n int) time.Duration {
	d := min(firstBackoff<<min(n, 10), longestBackoff)
	return d - rand.N(d/2)
}

// Pause waits for d; false: ctx or done (nil: none) was closed before.
func Pause(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-done:
	case <-ctx.Done():
	}
	return false
}

// retryAfter parses a Retry-After header (RFC 9110, 10.2.3).
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(n, 0), 1<<31)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
