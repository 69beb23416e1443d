package httpdial

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	firstBackoff  = 250 * time.Millisecond // the longest wait that Backoff returns for attempt 0; it doubles with each attempt
	maxBackoff    = 30 * time.Second       // the longest wait that Backoff returns
	maxRetryAfter = time.Minute            // the longest wait that a server's Retry-After can ask of BackoffAfter
)

// Backoff returns how long to wait before attempt n (from 0): it doubles, from
// a quarter of a second up to 30 s, and up to half of it is left to chance, so that
// many clients of a server that comes back do not all come at once.
func Backoff(n int) time.Duration {
	d := min(firstBackoff<<min(n, 10), maxBackoff)
	return d - rand.N(d/2)
}

// BackoffAfter returns how long to wait before attempt n, after one that has failed with f: as long as
// Backoff says, but no less than f.RetryAfter, of which up to a minute counts. f may be nil.
func BackoffAfter(f *Fault, n int) time.Duration {
	if f == nil {
		return Backoff(n)
	}
	return max(Backoff(n), min(f.RetryAfter, maxRetryAfter))
}

// Pause waits for d. false: the wait has ended earlier, because ctx was done, or because done was closed
// or had an element. done may be nil.
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

// MayRepeatMethod reports whether a request of this method changes nothing, so that a
// server that was too busy for it may be asked again (LE14).
func MayRepeatMethod(method string) bool { return era.OnlyReads(method) }

// MayRepostAnswer reports whether an answer to the server, whose POST has ended with f, is posted again: the network has lost
// it, perhaps on the way back, or the server was too busy for it. It does no harm that an answer arrives twice. But
// a server that never gets it waits for ever, and with it the call in whose course it has asked.
func MayRepostAnswer(f *Fault) bool {
	return !f.SessionLost && (f.ServerBusy || f.Transient && f.Status == 0)
}

// AllowReplay tells net/http that it may send req, a POST of m, again when a kept connection turns out to
// have been closed by the server before it has answered anything. It does so only if it does no harm that
// m arrives twice: not for the one request that acts, tools/call, nor for methods that only the two ends
// know.
func AllowReplay(req *http.Request, m jsonrpc.Message) {
	method := m.Method()
	switch {
	case m.Kind() != jsonrpc.Request, MayRepeatMethod(method):
	case method == "initialize", method == "logging/setLevel", method == "resources/subscribe", method == "resources/unsubscribe":
	default:
		return
	}
	req.Header["Idempotency-Key"] = nil // a sign for net/http; it is not sent
}

const (
	maxBusyRetries = 2               // how often a request is sent again that the server was too busy for
	firstBusyWait  = time.Second / 2 // how long to wait before such a request is sent again for the first time
	maxBusyWait    = 5 * time.Second // if the server's Retry-After is longer, the request is not sent again: the client may do that
)

// PauseBeforeBusyRetry waits before a server that was too busy is asked again. n is how often it
// was asked again already; retryAfter is what the server has said. false: it is not to be
// asked again, or ctx is done.
func PauseBeforeBusyRetry(ctx context.Context, n int, retryAfter time.Duration) bool {
	if n >= maxBusyRetries || retryAfter > maxBusyWait {
		return false
	}
	d := firstBusyWait << n
	return Pause(ctx, nil, max(d-rand.N(d/4), retryAfter))
}

// parseRetryAfter returns how long a Retry-After header wants the client to wait, from now on (RFC 9110,
// 10.2.3); 0: it does not say, or the time has come.
func parseRetryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(n, 0), 1<<31)) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
