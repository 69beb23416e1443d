package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// lastHangup makes the next SIGHUP end the process at once.
func lastHangup() { signal.Reset(syscall.SIGHUP) }

// untilHangup returns a context that ends with the first SIGHUP too; the next
// one ends the process. It is for runs that have nothing to load again.
func untilHangup(ctx context.Context, hangup <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx
		select {
		case <-hangup:
			lastHangup()
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
