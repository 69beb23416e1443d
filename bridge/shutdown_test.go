package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A conversation whose server has to go may go on for as long as ShutdownGraceFor says,
// but after Shutdown for no longer than ShutdownGrace, and never for longer than before.
func TestShutdownBoundsGrace(t *testing.T) {
	type serve func(ctx context.Context, client, server bridge.Conn, o bridge.PumpOptions) error
	for name, run := range map[string]serve{"Pump": bridge.Pump, "Exchange": bridge.Exchange} {
		for _, c := range []struct {
			when      string
			wait, end time.Duration // ShutdownGraceFor, and when Shutdown is closed
			want      time.Duration // until the call is answered
		}{
			{"meanwhile", time.Hour, 10 * time.Minute, 10*time.Minute + 5*time.Second},
			{"before", time.Hour, 0, 5 * time.Second},
			{"near its end", time.Minute, 58 * time.Second, time.Minute},
			{"after it", time.Second, time.Minute, time.Second},
		} {
			t.Run(name+" "+c.when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, clientEnd := bridge.Pipe()
					server, serverEnd := bridge.Pipe()
					ctx, cancel := context.WithCancelCause(t.Context())
					shutdown := make(chan struct{})
					o := bridge.PumpOptions{ShutdownGrace: 5 * time.Second, Shutdown: shutdown}
					o.ShutdownGraceFor = func(why error) time.Duration {
						if why != bridge.ErrClosing {
							t.Errorf("the conversation ends for %v", why)
						}
						return c.wait
					}
					done := make(chan error, 1)
					go func() { done <- run(ctx, clientEnd, serverEnd, o) }()
					must(t, client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", nil)))
					_, err := bridgetest.Recv(t.Context(), server)
					must(t, err)
					synctest.Wait()
					began := time.Now()
					end := time.AfterFunc(c.end, func() { close(shutdown) })
					defer end.Stop()
					if c.end == 0 {
						synctest.Wait()
					}
					cancel(bridge.ErrClosing)
					m, err := bridgetest.Recv(t.Context(), client)
					must(t, err)
					if took := time.Since(began); took != c.want || m.Lookup("error") == nil {
						t.Errorf("after %v the client got %s, want an error after %v", took, m.Bytes(), c.want)
					}
					must(t, <-done)
					_ = client.Close(nil)
					_ = server.Close(nil)
				})
			})
		}
	}
}
