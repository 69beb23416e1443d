package remoteconn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// collect is a Sink that notes what it takes; it takes nothing at once if slow.
type collect struct {
	slow bool
	got  []string
}

func (c *collect) TrySend(m jsonrpc.Message) bool {
	if c.slow {
		return false
	}
	return c.Send(context.Background(), m) == nil
}

func (c *collect) Send(_ context.Context, m jsonrpc.Message) error {
	c.got = append(c.got, m.Method())
	return nil
}

func note(method string) jsonrpc.Message { return jsonrpc.NewNotification(method, nil) }

// What has come before a Conn ends by itself is handed on before its error; what comes
// afterwards is dropped, and nothing begins any more.
func TestEnd(t *testing.T) {
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b Base
			b.Init()
			why := errors.New("why")
			b.Deliver(t.Context(), note("a"))
			b.End(why)
			b.Deliver(t.Context(), note("b"))
			sink := &collect{slow: slow}
			if err := b.Receive(t.Context(), sink); err != why || len(sink.got) != 1 || sink.got[0] != "a" {
				t.Errorf("Receive = %v, after %v", err, sink.got)
			}
			if err := b.Err(t.Context()); err != why {
				t.Errorf("Err = %v", err)
			}
			b.Shutdown(nil)
			if err := b.Receive(t.Context(), sink); err != why {
				t.Errorf("Receive after Close = %v", err)
			}
		})
	}
}

// Shutdown waits for goroutines, unblocks who waits, and lets nothing begin any more.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Base
		b.Init()
		slots := make(Slots, 1)
		if err := slots.Acquire(t.Context(), &b); err != nil || slots.TryAcquire() {
			t.Fatal("the slots are wrong")
		}
		errs := make(chan error, 3)
		ended := false
		b.Go(func() { errs <- slots.Acquire(t.Context(), &b); ended = true })
		b.Go(func() { errs <- b.Wait(t.Context(), nil) })
		go func() { errs <- b.Receive(t.Context(), &collect{}) }()
		synctest.Wait()
		last := false
		b.Shutdown(func() { last = ended })
		for range 3 {
			if err := <-errs; err != ErrClosed {
				t.Errorf("a call that waits ended with %v", err)
			}
		}
		if !last || b.Go(func() {}) {
			t.Error("Shut has not waited, or lets goroutines begin")
		}
	})
}

// A Conn whose receiver takes nothing makes the bringer of a message wait, until it is closed.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Base
		b.Init()
		n := 0
		b.Go(func() {
			for b.Context().Err() == nil {
				b.Deliver(b.Context(), note("x"))
				n++
			}
		})
		synctest.Wait()
		if n != maxQueuedMessages {
			t.Errorf("%d messages were queued, want %d", n, maxQueuedMessages)
		}
		b.Shutdown(nil)
	})
}
