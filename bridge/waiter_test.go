package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestWaiterHandsBack: one who brings a message does not have to do the receiver's
// work for ever, however much others bring meanwhile. The receiver goes on then.
func TestWaiterHandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none, taken := true, 0
		w := bridge.NewWaiter(func() (m jsonrpc.Message, err error, ok bool) {
			return jsonrpc.NewNotification("n", nil), nil, !none // there is always one more
		})
		got := make(chan jsonrpc.Message)
		go func() {
			m, err := w.Offer(t.Context(), func(jsonrpc.Message, bool) (took, more bool) {
				taken++
				return true, true
			})
			if err != nil {
				t.Error(err)
			}
			got <- m
		}()
		synctest.Wait() // it waits
		none = false
		w.Arrived()
		if taken == 0 {
			t.Error("nothing was taken where it has come up")
		}
		if m := <-got; m.Method() != "n" {
			t.Errorf("the receiver got %q", m.Bytes())
		}
	})
}

// TestWaiterEnds: when the receiver's context is done nothing is taken any more,
// even before the receiver knows.
func TestWaiterEnds(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			none := true
			w := bridge.NewWaiter(func() (m jsonrpc.Message, err error, ok bool) {
				return jsonrpc.NewNotification("n", nil), nil, !none
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := w.Offer(ctx, func(jsonrpc.Message, bool) (took, more bool) {
					t.Error("something was taken")
					return true, false
				})
				ended <- err
			}()
			synctest.Wait() // it waits
			none = false
			cancel()
			w.Arrived()
			if err := <-ended; err != context.Canceled {
				t.Errorf("Offer: %v", err)
			}
		})
	}
}
