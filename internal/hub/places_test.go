package hub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// A client that goes while it waits leaves the places that it had already; who
// waits too long, or may not, hears that it is busy.
func TestPlacesOfWhoGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newProcessLimit(3, 1, time.Minute, "--max-children")
		all := newProcessLimit(1, 1, time.Minute, "--max-children-total")
		enter := acquireFromLimits(own, all)
		leave, err := enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := enter(ctx)
			done <- err
		}()
		synctest.Wait()
		if _, err := enter(t.Context()); !errors.Is(err, bridge.ErrBusy) {
			t.Errorf("with a full queue: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone: %v", err)
		}
		begun := time.Now()
		if _, err := enter(t.Context()); !errors.Is(err, bridge.ErrBusy) || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		leave()
		if own.Taken() != 0 || all.Taken() != 0 {
			t.Errorf("left behind: %d and %d", own.Taken(), all.Taken())
		}
	})
}
