//go:build !race

package stdio

import (
	"context"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// One allocation per message received, none per message sent. (The race
// detector adds its own.)
func TestAllocations(t *testing.T) {
	x, y := pipes(t, Options{}, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan struct{})
	over := make(chan error, 1)
	go func() {
		over <- y.Receive(ctx, bridgetest.SinkFunc(func(context.Context, jsonrpc.Message) error {
			got <- struct{}{}
			return nil
		}))
	}()
	m := benchMessage(1000)
	allocs := testing.AllocsPerRun(1000, func() {
		bridgetest.Must(t, x.Send(ctx, m))
		<-got
	})
	if allocs > 1 {
		t.Errorf("%v allocations per message, want 1", allocs)
	}
	cancel()
	<-over
}
