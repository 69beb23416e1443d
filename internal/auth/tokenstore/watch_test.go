package tokenstore

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

type seen struct {
	g   Generation
	err error
}

// watched calls WatchGeneration, and returns what it tells; each is waited for.
func watched(t *testing.T, s *Store, known Generation) (next func() seen) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan seen)
	done := make(chan error, 1)
	go func() {
		done <- s.WatchGeneration(ctx, testKey, known, func(g Generation, err error) {
			select {
			case told <- seen{g, err}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		bridgetest.Must(t, <-done)
	})
	return func() seen {
		t.Helper()
		select {
		case c := <-told:
			return c
		case <-time.After(patience):
			t.Fatal("nothing was told")
			return seen{}
		}
	}
}

// TestWatch: each change of the generation is told, also the one before WatchGeneration
// was called, and no other change of the file.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first := save(t, s, named("a"))
	next := watched(t, s, 0)
	if c := next(); c.g != first || c.err != nil {
		t.Errorf("told %v, and %d is stored", c, first)
	}
	second := save(t, s, named("b"))
	if c := next(); c.g != second || c.err != nil {
		t.Errorf("told %v, and %d is stored", c, second)
	}
	locked(t, s, func(l *LockedCredential) error { return l.CountTokenRequest(0) }) // must not be told
	good := contents(t, credPath(s))
	bridgetest.Must(t, os.WriteFile(credPath(s), []byte("{"), 0o600))
	if c := next(); !errors.Is(c.err, ErrBroken) {
		t.Errorf("told %v of a broken file", c)
	}
	bridgetest.Must(t, os.WriteFile(credPath(s), []byte(good), 0o600))
	if c := next(); c.g != second || c.err != nil {
		t.Errorf("told %v, and %d is stored", c, second)
	}
	bridgetest.Must(t, s.Delete(within(t), testKey))
	if c := next(); c.g != 0 || c.err != nil {
		t.Errorf("told %v of a deleted file", c)
	}
}

// TestWatchEmpty: a credential that comes into an empty store is told, in a sealed store without the key.
func TestWatchEmpty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/auth"
	next := watched(t, open(t, dir), 0)
	g := save(t, openSealed(t, dir, &fakeRing{}), named("a"))
	if c := next(); c.g != g || c.err != nil {
		t.Errorf("told %v, and %d is stored", c, g)
	}
}
