package translate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// moody is a server that sometimes takes what it is sent at once, sometimes
// later, and sometimes says something.
type moody struct {
	mu   sync.Mutex
	got  []string
	says chan jsonrpc.Message
}

func (s *moody) hear(m jsonrpc.Message) {
	s.mu.Lock()
	s.got = append(s.got, string(m.Bytes()))
	s.mu.Unlock()
	if rand.IntN(4) == 0 {
		select {
		case s.says <- vendor(0):
		default:
		}
	}
}

func (s *moody) Send(_ context.Context, m jsonrpc.Message) error {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Millisecond)
	}
	s.hear(m)
	return nil
}

// TrySend refuses some, while which others come.
func (s *moody) TrySend(m jsonrpc.Message) bool {
	if rand.IntN(3) == 0 {
		time.Sleep(time.Millisecond)
		return false
	}
	s.hear(m)
	return true
}

func (s *moody) Receive(ctx context.Context, sink bridge.Sink) error {
	for {
		select {
		case m := <-s.says:
			if err := sink.Send(ctx, m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *moody) Close(error) error { return nil }

// TestTranslateOrder: whatever is tried, waits or is given up, both sides get each
// message of the filter once, in its order.
func TestTranslateOrder(t *testing.T) {
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			toServer, toClient := 0, 0 // said by the filter
			say := func(n int, out *era.Out) {
				for range n {
					out.Server(vendor(toServer))
					toServer++
				}
			}
			tell := func(n int, out *era.Out) {
				for range n {
					out.Client(vendor(toClient))
					toClient++
				}
			}
			server := &moody{says: make(chan jsonrpc.Message, 100)}
			c := translate.Wrap(server, &script{
				fromClient: func(_ jsonrpc.Message, out *era.Out) { say(rand.IntN(4), out); tell(rand.IntN(3), out) },
				fromServer: func(_ jsonrpc.Message, out *era.Out) { say(rand.IntN(3), out); tell(1, out) },
			}, nil)
			var heard []string
			var wg sync.WaitGroup
			hear := func(m jsonrpc.Message) { heard = append(heard, string(m.Bytes())) }
			wg.Go(func() { _ = c.Receive(t.Context(), hearing{hear, round%2 == 0}) })
			var senders sync.WaitGroup
			for range 4 {
				senders.Go(func() {
					for range 100 {
						if c.TrySend(vendor(0)) {
							continue
						}
						ctx, cancel := context.WithCancel(t.Context())
						if rand.IntN(10) == 0 {
							time.AfterFunc(time.Millisecond/2, cancel)
						}
						_ = c.Send(ctx, vendor(0))
						cancel()
					}
				})
			}
			senders.Wait()
			time.Sleep(time.Minute) // what is left is written by then
			synctest.Wait()
			if err := c.Close(nil); err != nil {
				t.Error(err)
			}
			wg.Wait()
			inOrder(t, "the server", server.got, toServer)
			inOrder(t, "the client", heard, toClient)
		})
	}
}

func inOrder(t *testing.T, who string, got []string, said int) {
	t.Helper()
	if len(got) != said {
		t.Errorf("%s has got %d messages of %d", who, len(got), said)
	}
	for i, text := range got {
		if want := string(new(vendor(i)).Bytes()); text != want {
			t.Fatalf("%s has got %s as number %d", who, text, i)
		}
	}
}

// hearing is a Sink that takes all, or what does not come at once.
type hearing struct {
	hear func(m jsonrpc.Message)
	try  bool
}

func (h hearing) TrySend(m jsonrpc.Message) bool {
	if h.try {
		h.hear(m)
	}
	return h.try
}

func (h hearing) Send(_ context.Context, m jsonrpc.Message) error {
	h.hear(m)
	return nil
}

// tried is a server's Conn that takes at once what try says.
type tried struct {
	bridge.Conn
	try func(jsonrpc.Message) bool
}

func (s tried) TrySend(m jsonrpc.Message) bool { return s.try(m) }

// TestTranslateEndsMeanwhile: what the filter has said is not written any more when
// the server has ended, for then it is answered.
func TestTranslateEndsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := bridgetest.NewPeer(t, 10), []string{}
		why := errors.New("gone")
		c := receive(translate.Wrap(tried{ours, func(m jsonrpc.Message) bool {
			if string(m.Bytes()) == string(new(vendor(7)).Bytes()) { // the server takes it at once
				return true
			}
			server = append(server, string(m.Bytes()))
			ours.End <- why
			synctest.Wait()
			return true
		}}, &script{
			fromClient: func(m jsonrpc.Message, out *era.Out) {
				if string(m.Bytes()) == string(new(vendor(7)).Bytes()) {
					out.Server(m)
					return
				}
				out.Server(vendor(1))
				out.Server(vendor(2))
				out.Server(vendor(3))
			},
			ended: func(_ error, out *era.Out) { out.Client(vendor(9)) },
		}, nil))
		defer c.Close(nil)
		heard := make(chan jsonrpc.Message, 1)
		go func() {
			m, _ := bridgetest.Recv(t.Context(), c)
			heard <- m
		}()
		synctest.Wait()
		bridgetest.Must(t, c.Send(t.Context(), vendor(7)))
		if !c.TrySend(vendor(0)) {
			t.Fatal("not taken")
		}
		if m := <-heard; string(m.Bytes()) != string(new(vendor(9)).Bytes()) {
			t.Errorf("the client has heard %s", m.Bytes())
		}
		if want := fmt.Sprint([]string{string(new(vendor(1)).Bytes())}); fmt.Sprint(server) != want {
			t.Errorf("the server was sent %s, want %s", server, want)
		}
	})
}
