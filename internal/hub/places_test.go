package hub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A client that goes while it waits leaves the places that it had already; who
// waits too long, or may not, hears that it is busy.
func TestPlacesOfWhoGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newProcessLimit(3, 1, "--max-children")
		all := newProcessLimit(1, 1, "--max-children-total")
		enter := acquireFromLimits(time.Minute, own, all)
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

// Who waits for a place of its server, and then for one of all servers, waits no longer than --queue-timeout in all, and with
// --queue-timeout 0 for neither.
func TestQueueTimeoutForAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := newProcessLimit(1, 9, "--max-children")
		all := newProcessLimit(2, 9, "--max-children-total")
		another := acquireFromLimits(time.Minute, newProcessLimit(1, 9, "--max-children"), all)
		leave, err := acquireFromLimits(time.Minute, own, all)(t.Context())
		bridgetest.Must(t, err)
		leaveAnother, err := another(t.Context())
		bridgetest.Must(t, err)
		begun := time.Now()
		if _, err := acquireFromLimits(0, newProcessLimit(1, 9, "--max-children"), all)(t.Context()); !errors.Is(err, bridge.ErrBusy) || time.Since(begun) != 0 {
			t.Errorf("with no time to wait: after %v: %v", time.Since(begun), err)
		}
		time.AfterFunc(40*time.Second, func() {
			all.Resize(1) // so that the place of all that is given back now is no other's
			leave()
		})
		_, err = acquireFromLimits(time.Minute, own, all)(t.Context())
		if !errors.Is(err, bridge.ErrBusy) || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		leaveAnother()
		if own.Taken() != 0 || all.Taken() != 0 {
			t.Errorf("left behind: %d and %d", own.Taken(), all.Taken())
		}
	})
}
