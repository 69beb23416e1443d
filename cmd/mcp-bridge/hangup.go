package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// exitOnNextHangup makes the next SIGHUP end the process at once.
func exitOnNextHangup() { signal.Reset(syscall.SIGHUP) }

// cancelOnHangup returns a context that ends with the first SIGHUP too; the next
// one ends the process. It is for runs that have nothing to load again.
func cancelOnHangup(ctx context.Context, hangup <-chan os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx
		select {
		case <-hangup:
			exitOnNextHangup()
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
