package hub

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// The places go to those who come first; who waits too long, or finds a full
// queue, hears that it is busy.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &places{max: 1, queue: 2, wait: 10 * time.Second, flag: "--max-children"}
		if err := p.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 3)
		wait := func(name string) {
			err := p.take(t.Context())
			switch {
			case err == nil:
				got <- name
			case errors.Is(err, bridge.ErrBusy):
				got <- name + " is too late"
			default:
				got <- err.Error()
			}
		}
		go wait("first")
		synctest.Wait()
		go wait("second")
		synctest.Wait()
		if err := p.take(t.Context()); !errors.Is(err, bridge.ErrBusy) {
			t.Errorf("with a full queue: %v", err)
		}
		p.leave()
		if who := <-got; who != "first" {
			t.Errorf("the place went to: %s", who)
		}
		start := time.Now()
		if who := <-got; who != "second is too late" || time.Since(start) != 10*time.Second {
			t.Errorf("after %v: %s", time.Since(start), who)
		}
		p.leave()
		if err := p.take(t.Context()); err != nil {
			t.Errorf("the place that was left cannot be had: %v", err)
		}
		p.leave()
	})
}

// A client that goes while it waits leaves its place in the queue, and the
// places that it had already.
func TestPlacesOfWhoGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &places{max: 2, queue: 1, wait: time.Minute}
		all := &places{max: 1, queue: 1, wait: time.Minute}
		enter := admit(own, all)
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
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone: %v", err)
		}
		leave()
		if own.taken != 0 || all.taken != 0 || len(all.waiting) != 0 {
			t.Errorf("left behind: %d, %d and %d who wait", own.taken, all.taken, len(all.waiting))
		}
	})
}

// More places let in who waits; fewer take nothing away.
func TestPlacesResized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &places{max: 1, queue: 2, wait: time.Minute}
		in := make(chan error)
		for range 3 {
			go func() { in <- p.take(t.Context()) }()
			synctest.Wait()
		}
		if err := <-in; err != nil {
			t.Fatal(err)
		}
		p.resize(2)
		if err := <-in; err != nil {
			t.Fatal(err)
		}
		p.resize(1)
		p.leave() // two are in where one may be: nobody follows
		synctest.Wait()
		select {
		case <-in:
			t.Error("one more than may be was let in")
		default:
		}
		p.leave()
		if err := <-in; err != nil {
			t.Fatal(err)
		}
		p.resize(0)
		if err := p.take(t.Context()); err != nil {
			t.Errorf("without a bound: %v", err)
		}
	})
}

// Without a bound there is always a place.
func TestNoPlaces(t *testing.T) {
	leave, err := admit(nil, nil)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
}
