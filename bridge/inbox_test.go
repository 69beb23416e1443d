package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// sinkFuncs is a Sink made of functions; a nil try takes nothing.
type sinkFuncs struct {
	try  func(m jsonrpc.Message) bool
	send func(ctx context.Context, m jsonrpc.Message) error
}

func (s sinkFuncs) TrySend(m jsonrpc.Message) bool { return s.try != nil && s.try(m) }

func (s sinkFuncs) Send(ctx context.Context, m jsonrpc.Message) error { return s.send(ctx, m) }

func numbered(i int) jsonrpc.Message {
	return jsonrpc.NewNotification("n", fmt.Appendf(nil, `{"i":%d}`, i))
}

// TestInboxOrder: what one goroutine brings arrives in its order, whether its own
// goroutine hands it on or the receiver's, and by one call of the sink at a time.
func TestInboxOrder(t *testing.T) {
	const bringers, each = 4, 2000
	b := &bridge.Inbox{MaxMessages: 3}
	var got [bringers]int
	var inline, calls int
	var one sync.Mutex
	take := func(m jsonrpc.Message) {
		if !one.TryLock() {
			t.Error("two calls of the sink at a time")
			return
		}
		defer one.Unlock()
		for w := range got {
			if next := numbered(w*each + got[w]); got[w] < each && bytes.Equal(m.Bytes(), next.Bytes()) {
				got[w]++
				return
			}
		}
		t.Errorf("%s is not next of any", m.Bytes())
	}
	sink := sinkFuncs{
		try: func(m jsonrpc.Message) bool {
			if calls++; calls%3 == 0 {
				return false
			}
			inline++
			take(m)
			return true
		},
		send: func(_ context.Context, m jsonrpc.Message) error { take(m); return nil },
	}
	var receiving, wg sync.WaitGroup
	receiving.Go(func() {
		if err := b.Receive(t.Context(), sink); err != io.EOF {
			t.Errorf("Receive = %v", err)
		}
	})
	for w := range bringers {
		wg.Go(func() {
			for i := range each {
				if err := b.Send(t.Context(), numbered(w*each+i)); err != nil {
					t.Errorf("Send = %v", err)
				}
			}
		})
	}
	wg.Wait()
	b.End(io.EOF)
	receiving.Wait()
	if got != [bringers]int{each, each, each, each} || inline == 0 {
		t.Errorf("got %v, %d inline", got, inline)
	}
}

// TestInboxRefused: what a sink refuses is not taken, and is the first of the next Receive.
func TestInboxRefused(t *testing.T) {
	b := new(bridge.Inbox)
	for i := range 3 {
		if !b.TrySend(numbered(i)) {
			t.Fatal("no room")
		}
	}
	refused := errors.New("refused")
	if err := b.Receive(t.Context(), sinkFuncs{send: func(context.Context, jsonrpc.Message) error { return refused }}); err != refused {
		t.Fatalf("Receive = %v", err)
	}
	b.End(io.EOF)
	var got []string
	err := b.Receive(t.Context(), sinkFuncs{try: func(m jsonrpc.Message) bool { got = append(got, string(m.Params())); return true }})
	if want := `[{"i":0} {"i":1} {"i":2}]`; fmt.Sprint(got) != want || err != io.EOF {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestInboxWaits: Send waits for room, bounded by messages and by bytes, and Abort, whoever calls
// it, ends all waiting.
func TestInboxWaits(t *testing.T) {
	for name, b := range map[string]*bridge.Inbox{"messages": {MaxMessages: 2}, "bytes": {MaxBytes: 100}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := errors.New("closed")
				var sent int
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						if err := b.Send(t.Context(), numbered(0)); err != nil {
							if err != closed {
								t.Errorf("Send = %v", err)
							}
							return
						}
						sent++
					}
				})
				synctest.Wait()
				if sent != 2 {
					t.Errorf("%d were taken", sent)
				}
				wg.Go(func() {
					err := b.Receive(t.Context(), sinkFuncs{send: func(ctx context.Context, m jsonrpc.Message) error {
						<-ctx.Done() // ends with Abort
						return ctx.Err()
					}})
					if err != closed {
						t.Errorf("Receive = %v", err)
					}
				})
				synctest.Wait()
				b.Abort(closed)
				wg.Wait()
			})
		})
	}
}

// TestInboxAbortInSink: the sink may end what it receives from, in whichever goroutine it runs.
func TestInboxAbortInSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(bridge.Inbox)
		done := make(chan error, 1)
		go func() {
			done <- b.Receive(t.Context(), sinkFuncs{try: func(jsonrpc.Message) bool { b.Abort(nil); return true }})
		}()
		synctest.Wait()
		if !b.TrySend(numbered(1)) {
			t.Error("not taken")
		}
		if err := <-done; err != io.ErrClosedPipe {
			t.Errorf("Receive = %v", err)
		}
		if b.TrySend(numbered(2)) {
			t.Error("taken after the end")
		}
	})
}

// TestFirst: the first message can be looked at, and is still the first.
func TestFirst(t *testing.T) {
	a, b := bridge.Pipe()
	c := a
	for i := range 2 {
		if err := b.Send(t.Context(), numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if m, err := bridge.First(t.Context(), c); err != nil || string(m.Params()) != `{"i":0}` {
			t.Fatalf("First = %s, %v", m.Params(), err)
		}
	}
	b.Close(nil)
	var got []string
	err := c.Receive(t.Context(), sinkFuncs{send: func(_ context.Context, m jsonrpc.Message) error {
		got = append(got, string(m.Params()))
		return nil
	}})
	if want := `[{"i":0} {"i":1}]`; fmt.Sprint(got) != want || err != io.EOF {
		t.Errorf("got %v, %v", got, err)
	}
}
