package streamhttp

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/httpclient"
)

const (
	mostBusy        = 2               // repetitions of a request that the server is too busy for
	firstBusy       = time.Second / 2 // before the first of them
	longestBusyWait = 5 * time.Second // a longer Retry-After is the client's to wait for
)

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
	return httpclient.Pause(ctx, nil, max(d, retryAfter))
}
