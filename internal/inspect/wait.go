package inspect

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// nextRecords returns the next records; none after a while in which there were none.
func nextRecords(ctx context.Context, f *trace.Follower) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, keepAliveInterval)
	defer cancel()
	return f.Next(ctx, maxBatchRecords)
}

// contextUntil returns a ctx that ends with the channel, too. cancel waits for what watches it.
func contextUntil(parent context.Context, closed <-chan struct{}) (ctx context.Context, cancel func()) {
	ctx, stop := context.WithCancel(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-closed:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { stop(); <-done }
}
