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

// A client that is gone has its calls cancelled at once, also when it has used both eras:
// each Pump hears that this is no shutdown, in which the calls might still end.
func TestByEraClientGoneIsCancelledAtOnce(t *testing.T) {
	for range 20 { // two Pumps, in any order
		synctest.Test(t, func(t *testing.T) {
			var servers []bridge.Conn
			h := bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
				ours, server := bridge.Pipe()
				servers = append(servers, server)
				return bridge.Pump(ctx, c, ours, bridge.PumpOptions{})
			})
			client, ours := bridge.Pipe()
			ctx, gone := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = bridge.ByEra(h, h).ServeConn(ctx, leaver{ours})
			}()
			for _, text := range []string{legacyThree, modernOne} {
				bridgetest.Must(t, client.Send(ctx, parse(t, text)))
				synctest.Wait()
			}
			start := time.Now()
			gone()
			for i, want := range []jsonrpc.ID{jsonrpc.IntID(3), jsonrpc.IntID(1)} {
				for _, method := range []string{"tools/call", "notifications/cancelled"} {
					m, err := bridgetest.Recv(t.Context(), servers[i])
					if err != nil || m.Method() != method {
						t.Fatalf("got %s, %v; want %s", m.Bytes(), err, method)
					}
					if method == "notifications/cancelled" && m.CancelledID() != want {
						t.Errorf("cancelled %v, want %v", m.CancelledID(), want)
					}
				}
			}
			<-done
			if took := time.Since(start); took != 0 {
				t.Errorf("the servers heard after %v that the client is gone", took)
			}
			for _, c := range append(servers, client) {
				_ = c.Close(nil)
			}
		})
	}
}
