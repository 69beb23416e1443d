package probe

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// fallback returns a Conn that may go on with another server, and its first server.
func fallback(t *testing.T) (c, server bridge.Conn) {
	t.Helper()
	near, far := bridge.Pipe()
	f := &Fallback{
		Prober:      New(Options{Protocol: era.OnlyLegacy, Logger: hclog.NewNullLogger()}),
		Legacy:      dialFunc(func(context.Context) (bridge.Conn, error) { return near, nil }),
		Sessionless: func() bool { return false },
	}
	conn, err := f.Dial(t.Context())
	bridgetest.Must(t, err)
	return conn, far
}

// Before initialize, and after it was answered, the Conn keeps the contract.
func TestFallbackContract(t *testing.T) {
	for _, phase := range []string{"before", "after"} {
		t.Run(phase, func(t *testing.T) {
			bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
				c, server := fallback(t)
				if phase == "after" {
					bridgetest.Must(t, c.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", nil)))
					if _, err := bridgetest.Recv(t.Context(), server); err != nil {
						t.Fatal(err)
					}
					bridgetest.Must(t, server.Send(t.Context(), jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{"protocolVersion":"2025-11-25"}`))))
					if _, err := bridgetest.Recv(t.Context(), c); err != nil {
						t.Fatal(err)
					}
				}
				return c, server, nil
			}, bridgetest.Options{InBubble: true})
		})
	}
}

// What came before the answer to initialize, and depends on that, is handed on behind it, and
// once, however often the client refuses it.
func TestFallbackHoldsAnswers(t *testing.T) {
	c, server := fallback(t)
	defer c.Close(nil)
	defer server.Close(nil)
	for _, m := range []jsonrpc.Message{jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", nil), jsonrpc.NewRequest(jsonrpc.IntID(2), "ping", nil)} {
		bridgetest.Must(t, c.Send(t.Context(), m))
	}
	for _, m := range []jsonrpc.Message{
		jsonrpc.NewResult(jsonrpc.IntID(2), nil), jsonrpc.NewNotification("x", nil),
		jsonrpc.NewResult(jsonrpc.IntID(1), nil), jsonrpc.NewResult(jsonrpc.IntID(3), nil),
	} {
		bridgetest.Must(t, server.Send(t.Context(), m))
	}
	for _, want := range []jsonrpc.ID{{}, jsonrpc.IntID(1), jsonrpc.IntID(2), jsonrpc.IntID(3)} {
		for range 2 {
			if m, err := bridge.First(t.Context(), c); err != nil || m.ID() != want {
				t.Errorf("offered %s, %v; want %s", m.Bytes(), err, want)
			}
		}
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || m.ID() != want {
			t.Errorf("received %s, %v; want %s", m.Bytes(), err, want)
		}
	}
}

// A message that the server of the other era does not take is told as dropped.
func TestFallbackDrops(t *testing.T) {
	dropped := make(chan string, 1)
	near, server := bridge.Pipe()
	f := &Fallback{
		Prober: New(Options{
			Protocol: era.OnlyLegacy, Logger: hclog.NewNullLogger(),
			Context: t.Context(), Spawn: func(f func()) error { go f(); return nil }, OnEraFound: func(bool) {},
			Dropped: func(m jsonrpc.Message, reason string) { dropped <- m.Method() + ": " + reason },
		}),
		Legacy: dialFunc(func(context.Context) (bridge.Conn, error) { return near, nil }),
		Modern: dialFunc(func(context.Context) (bridge.Conn, error) {
			other, peer := bridge.Pipe()
			return other, peer.Close(nil)
		}),
		Sessionless: func() bool { return false },
	}
	c, err := f.Dial(t.Context())
	bridgetest.Must(t, err)
	defer c.Close(nil)
	defer server.Close(nil)
	bridgetest.Must(t, c.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", nil)))
	bridgetest.Must(t, server.Send(t.Context(), jsonrpc.NewError(jsonrpc.IntID(1), -32022, "no", []byte(`{"supported":["2026-07-28"]}`))))
	if m, err := bridgetest.Recv(t.Context(), c); err == nil {
		t.Errorf("received %s", m.Bytes())
	}
	if got, want := <-dropped, "initialize: the server did not take it"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}
