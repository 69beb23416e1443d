package bridge_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// numberOf returns the n of numbered(n).
func numberOf(m jsonrpc.Message) string { return string(m.Lookup("params", "i")) }

// TestInboxDeliver: what was added is handed on by Deliver, in the goroutine that calls it,
// as long as the receiver takes it, and else by the receiver's.
func TestInboxDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bridge.Inbox
		var got []string
		inline, takes := 0, true
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- b.Receive(ctx, sinkFuncs{
				try: func(m jsonrpc.Message) bool {
					if takes {
						inline++
						got = append(got, numberOf(m))
					}
					return takes
				},
				send: func(_ context.Context, m jsonrpc.Message) error {
					got = append(got, numberOf(m))
					return nil
				},
			})
		}()
		synctest.Wait()
		for i := range 3 {
			if !b.Add(numbered(i)) {
				t.Fatal("no room")
			}
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("%v was handed on before Deliver", got)
		}
		b.Deliver()
		if want := []string{"0", "1", "2"}; !slices.Equal(got, want) || inline != 3 {
			t.Errorf("got %v, %d inline", got, inline)
		}
		takes = false
		b.Add(numbered(3))
		b.Deliver()
		synctest.Wait()
		if want := []string{"0", "1", "2", "3"}; !slices.Equal(got, want) || inline != 3 {
			t.Errorf("got %v, %d inline", got, inline)
		}
		if taken := b.Taken(); taken.Messages != 4 {
			t.Errorf("taken: %v", taken)
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Receive = %v", err)
		}
	})
}

// TestInboxRemove: what is removed is not handed on, not even if it was being offered and
// not taken; what was taken meanwhile stays so.
func TestInboxRemove(t *testing.T) {
	for name, takes := range map[string]bool{"taken": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			var b bridge.Inbox
			odd := func(m jsonrpc.Message) bool { return numberOf(m) != "0" && numberOf(m) != "2" }
			for i := range 4 {
				b.Put(numbered(i))
			}
			if !b.Remove(odd) || b.Remove(odd) {
				t.Error("1 and 3 are to be found, once")
			}
			if waiting := b.Waiting(); waiting.Messages != 2 || waiting.Bytes != 2*len(new(numbered(0)).Bytes()) {
				t.Errorf("waiting: %v", waiting)
			}
			b.End(context.Canceled)
			var got []string
			err := b.Receive(t.Context(), sinkFuncs{
				try: func(m jsonrpc.Message) bool {
					remove := func(number string) bool {
						return b.Remove(func(r jsonrpc.Message) bool { return numberOf(r) == number })
					}
					if remove("0") != (numberOf(m) == "0") || remove("0") || remove("9") {
						t.Errorf("found at %s", numberOf(m))
					}
					if takes {
						got = append(got, numberOf(m))
					}
					return takes
				},
				send: func(_ context.Context, m jsonrpc.Message) error {
					got = append(got, numberOf(m))
					return nil
				},
			})
			want := []string{"2"}
			if takes {
				want = []string{"0", "2"}
			}
			if err != context.Canceled || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if waiting := b.Waiting(); waiting != (bridge.Load{}) {
				t.Errorf("waiting: %v", waiting)
			}
		})
	}
}

// TestInboxNotifyBelow: who asks is told once, when little enough waits, or at once if
// that is so already.
func TestInboxNotifyBelow(t *testing.T) {
	var b bridge.Inbox
	told := make(chan struct{}, 1)
	size := len(new(numbered(0)).Bytes())
	for i := range 5 {
		b.Put(numbered(i))
	}
	b.NotifyBelow(bridge.Load{Messages: 3, Bytes: 2 * size}, told)
	left := 5
	ctx, cancel := context.WithCancel(t.Context())
	_ = b.Receive(ctx, sinkFuncs{try: func(jsonrpc.Message) bool {
		if (len(told) > 0) != (left < 3) || b.IsNotifying() != (left >= 3) {
			t.Errorf("told with %d waiting: %d", left, len(told))
		}
		if left--; left == 0 {
			cancel()
		}
		return true
	}})
	<-told
	b.NotifyBelow(bridge.Load{}, told)
	if len(told) != 1 || b.IsNotifying() {
		t.Error("not told though nothing waits")
	}
}
