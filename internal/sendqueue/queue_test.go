package sendqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
)

func message(n, size int) []byte { return fmt.Appendf(nil, `{"n":%d,"pad":"%*s"}`, n, size, "") }

func send(t *testing.T, q *Queue, n int, want bool) {
	t.Helper()
	if q.TrySend(message(n, 10)) != want {
		t.Errorf("message %d: taken %v, want %v", n, !want, want)
	}
}

// A queue holds so many messages, in order, and no more until they are taken.
func TestFull(t *testing.T) {
	q := New(3, 1<<20)
	for n := range 3 {
		send(t, q, n, true)
	}
	send(t, q, 3, false)
	<-q.Ready()
	all, last := q.TakeAll(nil)
	for n, m := range all {
		if want := message(n, 10); string(m) != string(want) {
			t.Errorf("message %d is %s", n, m)
		}
	}
	if len(all) != 3 || last || q.Len() != 0 {
		t.Errorf("%d messages, last %v, %d left", len(all), last, q.Len())
	}
	if !q.TrySend(message(4, 1000)) || len(q.Ready()) != 1 {
		t.Error("there is room again, and something to take")
	}
}

// It holds so many bytes, and one message of any size.
func TestBytes(t *testing.T) {
	q := New(100, 500)
	if !q.TrySend(message(0, 400)) || !q.TrySend(message(1, 10_000)) || q.TrySend(message(2, 1)) {
		t.Error("it is full when it holds 500 bytes, and not before")
	}
}

// Send waits for room, for no longer than its ctx, and until the Queue is closed.
func TestSendWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(1, 1<<20)
		send(t, q, 0, true)
		var wg sync.WaitGroup
		wait := func(ctx context.Context, n int, want error) {
			wg.Go(func() {
				if err := q.Send(ctx, message(n, 10)); err != want {
					t.Errorf("Send of %d = %v, want %v", n, err, want)
				}
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, 1, context.Canceled)
		cancel()
		wg.Wait()
		wait(t.Context(), 2, nil)
		q.TakeAll(nil)
		wg.Wait()
		why := errors.New("over")
		wait(t.Context(), 3, why)
		q.Close(why)
		q.Close(io.EOF)
		wg.Wait()
		wait(t.Context(), 4, why)
		wg.Wait()
		if all, last := q.TakeAll(nil); len(all) != 1 || !last || string(all[0]) != string(message(2, 10)) {
			t.Errorf("%d messages, last %v", len(all), last)
		}
		wait(ctx, 5, context.Canceled)
		wg.Wait()
	})
}
