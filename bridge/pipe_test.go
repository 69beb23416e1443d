package bridge_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestPipeContract(t *testing.T) {
	bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
		a, b = bridge.Pipe()
		return a, b, nil
	}, bridgetest.Options{InBubble: true})
}

// A Pipe holds a bounded number of messages, and waits so that a synctest
// bubble notices.
func TestPipeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := bridge.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		m := jsonrpc.NewNotification("notifications/x", nil)
		sent := 0
		var err error
		go func() {
			for err == nil {
				if err = a.Send(ctx, m); err == nil {
					sent++
				}
			}
		}()
		synctest.Wait()
		if sent == 0 || sent > 100 {
			t.Errorf("%d messages were taken while nobody receives, want a few", sent)
		}
		cancel()
		synctest.Wait()
		if err != context.Canceled {
			t.Errorf("Send = %v, want context.Canceled", err)
		}
		a.Close(nil)
		for range sent {
			if _, err := bridgetest.Recv(t.Context(), b); err != nil {
				t.Fatalf("a message sent before Close is lost: %v", err)
			}
		}
		if _, err := bridgetest.Recv(t.Context(), b); err != io.EOF {
			t.Errorf("Recv = %v, want io.EOF", err)
		}
	})
}
