package sharing

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/limiter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestIdleSince: D.3. A shared process in which a call has just ended has not been out of use for long, however long its clients have
// been there: it is not taken away before one that nobody has called for longer.
func TestIdleSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, p := newRouter(t, &byName{})
		want := func(when string, use limiter.Use, since time.Time) {
			t.Helper()
			synctest.Wait()
			if got, at := p.Servers()[0].Use(); got != use || use != limiter.Busy && !at.Equal(since) {
				t.Errorf("%s: use %d since %v, want %d since %v", when, got, at, use, since)
			}
		}
		call := func(id int) {
			t.Helper()
			bridgetest.Must(t, c.Send(t.Context(), request(id, "x", "a")))
			_, err := bridgetest.Recv(t.Context(), c)
			bridgetest.Must(t, err)
		}
		call(1)
		first := time.Now()
		want("after a call", limiter.Idle, first)
		time.Sleep(time.Minute)
		want("a minute later", limiter.Idle, first)
		call(2)
		want("after another call", limiter.Idle, time.Now())
		time.Sleep(time.Minute)
		bridgetest.Must(t, c.Send(t.Context(), request(3, "hang", "a")))
		want("in a call", limiter.Busy, time.Time{})
		time.Sleep(time.Minute)
		bridgetest.Must(t, c.Send(t.Context(), jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":3}`))))
		want("after a cancelled call", limiter.Idle, time.Now())
	})
}
