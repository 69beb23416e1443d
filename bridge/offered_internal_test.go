package bridge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type inboxConn struct {
	Inbox
	out func(ctx context.Context, m jsonrpc.Message) error
}

func (c *inboxConn) Send(ctx context.Context, m jsonrpc.Message) error { return c.out(ctx, m) }
func (c *inboxConn) TrySend(m jsonrpc.Message) bool                    { return false }
func (c *inboxConn) Close(error) error                                 { c.Abort(nil); return nil }

type offerSink struct {
	try  func(m jsonrpc.Message) bool
	send func(ctx context.Context, m jsonrpc.Message) error
}

func (s *offerSink) TrySend(m jsonrpc.Message) bool                    { return s.try(m) }
func (s *offerSink) Send(ctx context.Context, m jsonrpc.Message) error { return s.send(ctx, m) }

// A message that is withdrawn between TrySend and the next offer: what comes next is lost.
func TestInterceptWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &inboxConn{}
		x := Intercept(c, Hooks{Receive: func(*jsonrpc.Message) *jsonrpc.Message { return nil }})
		var got []string
		busy := true
		sink := &offerSink{
			try: func(m jsonrpc.Message) bool {
				if busy {
					return false
				}
				got = append(got, m.ID().String())
				return true
			},
			send: func(_ context.Context, m jsonrpc.Message) error { got = append(got, m.ID().String()); return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); x.Receive(ctx, sink) }()
		synctest.Wait()
		// as Mux: the reader of the server does the work of the client's side
		c.Inbox.Add(jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{}`)))
		c.Inbox.sendTurn.Lock() // Deliver, step by step: the receiver has not woken yet
		m, s := c.Inbox.nextInline()
		if s.TrySend(m) {
			t.Fatal("taken")
		}
		c.Inbox.mu.Lock()
		c.Inbox.endOffer()
		c.Inbox.wakeReceiver()
		c.Inbox.mu.Unlock()
		if !c.Inbox.Remove(func(m jsonrpc.Message) bool { return m.ID() == jsonrpc.IntID(1) }) { // notifications/cancelled
			t.Fatal("not found")
		}
		busy = false
		c.Inbox.Add(jsonrpc.NewResult(jsonrpc.IntID(2), []byte(`{}`)))
		c.Inbox.sendTurn.Unlock()
		c.Inbox.Wake()
		synctest.Wait()
		if len(got) != 1 || got[0] != "2" {
			t.Errorf("handed on: %v, want [2]", got)
		}
		cancel()
		<-done
	})
}

// The server's Conn ends while the client is slow to take an answer that the Pump has.
func TestPumpAnswerInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &inboxConn{}
		var asked []string
		server.out = func(_ context.Context, m jsonrpc.Message) error { asked = append(asked, m.ID().String()); return nil }
		client := &inboxConn{}
		free := make(chan struct{})
		var got []string
		client.out = func(ctx context.Context, m jsonrpc.Message) error {
			select {
			case <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
			got = append(got, string(m.Bytes()))
			return nil
		}
		res := make(chan error, 1)
		var dropped []string
		go func() {
			res <- Pump(t.Context(), client, server, PumpOptions{Dropped: func(m jsonrpc.Message, why string) { dropped = append(dropped, why) }})
		}()
		client.Inbox.Put(jsonrpc.NewRequest(jsonrpc.IntID(1), "a", nil))
		client.Inbox.Put(jsonrpc.NewRequest(jsonrpc.IntID(2), "b", nil))
		synctest.Wait()
		server.Inbox.Put(jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{}`)))
		synctest.Wait()
		server.Inbox.Abort(ErrClosing)
		time.Sleep(100 * time.Millisecond)
		close(free)
		err := <-res
		t.Logf("Pump: %v; asked %v; client got %q; dropped %q", err, asked, got, dropped)
		if len(got) != 2 {
			t.Errorf("two requests, %d answers", len(got))
		}
		_ = errors.Is
	})
}
