package streamclient

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A notification that has set out was taken, also if its sender does not wait until the
// server has accepted it: who heard of an error would send it again.
func TestNotificationIsNotSentTwice(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/slow"}`
	slow := func(_ http.ResponseWriter, _ *http.Request, m jsonrpc.Message) bool {
		if m.Method() == "notifications/slow" {
			time.Sleep(10 * time.Second)
		}
		return false
	}
	sendTwice := func(t *testing.T, c bridge.Conn, s *fakeServer) {
		for range 2 { // the second time only if the first one has failed
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := c.Send(ctx, msg(note))
			cancel()
			if err == nil {
				break
			}
		}
		synctest.Wait()
		if n := len(s.requests("notifications/slow")); n != 1 {
			t.Errorf("the server has got it %d times", n)
		}
	}
	t.Run("legacy", func(t *testing.T) {
		testClient(t, func(s *fakeServer, _ *Options) { s.onPost = slow }, func(t *clientTest) {
			t.open()
			sendTwice(t.T, t.conn, t.server)
		})
	})
	t.Run("modern", func(t *testing.T) {
		testModern(t, func(s *fakeServer, _ *ModernOptions) { s.onPost = slow }, func(t *modernTest) {
			sendTwice(t.T, t.conn, t.server)
		})
	})
}
