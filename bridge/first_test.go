package bridge_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A client that says nothing gets no server, and not for ever; what it says
// first is not lost.
func TestAwaitFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		h := bridge.AwaitFirst(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			for {
				m, err := bridgetest.Recv(ctx, client)
				if err != nil {
					return err
				}
				got = append(got, m.Method())
			}
		}), 30*time.Second)

		_, silent := bridge.Pipe()
		began := time.Now()
		err := h.ServeConn(t.Context(), silent)
		if time.Since(began) != 30*time.Second || err != nil {
			t.Errorf("a silent client: %v after %v", err, time.Since(began))
		}

		client, server := bridge.Pipe()
		go func() {
			for _, method := range []string{"a", "b"} {
				_ = client.Send(t.Context(), jsonrpc.NewNotification(method, nil))
			}
			_ = client.Close(nil)
		}()
		if err := h.ServeConn(t.Context(), server); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		if len(got) != 2 || got[0] != "a" || got[1] != "b" {
			t.Errorf("the server got %q", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.ServeConn(ctx, silent); !errors.Is(err, context.Canceled) {
			t.Errorf("at shutdown: %v", err)
		}
	})
}
