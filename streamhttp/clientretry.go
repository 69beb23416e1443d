package streamhttp

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	firstBackoff   = 250 * time.Millisecond
	longestBackoff = 30 * time.Second

	mostBusy        = 2               // repetitions of a request that the server is too busy for
	firstBusy       = time.Second / 2 // before the first of them
	longestBusyWait = 5 * time.Second // a longer Retry-After is the client's to wait for
)

// backoff returns how long to wait before attempt n (from 0): it doubles, and
// up to half of it is left to chance, so that many clients of a server that
// comes back do not all come at once.
func backoff(n int) time.Duration {
	d := min(firstBackoff<<min(n, 10), longestBackoff)
	return d - rand.N(d/2)
}

// mayRepeat reports whether a request of this method changes nothing, so that
// doing it twice does no harm (LE14).
func mayRepeat(method string) bool {
	switch method {
	case "ping", "resources/read", "prompts/get", "completion/complete":
		return true
	}
	return strings.HasSuffix(method, "/list")
}

// pauseBusy waits before the server is asked again; false: it is not asked again.
func pauseBusy(ctx context.Context, repeats int, retryAfter time.Duration) bool {
	if repeats >= mostBusy || retryAfter > longestBusyWait {
		return false
	}
	d := firstBusy << repeats
	d -= rand.N(d / 4)
	return pause(ctx, nil, max(d, retryAfter))
}
