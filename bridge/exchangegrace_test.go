package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A request in progress when the bridge shuts down may be answered within the
// ShutdownGrace; then it gets an error, and the server hears that nobody waits.
func TestExchangeGrace(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration // until the server answers
		reason string
	}{"answered": {4 * time.Second, ""}, "too late": {time.Hour, `"shutting_down"`}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, clientEnd := bridge.Pipe()
				server, serverEnd := bridge.Pipe()
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error, 1)
				go func() { done <- bridge.Exchange(ctx, clientEnd, serverEnd, bridge.PumpOptions{}) }()
				must(t, client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", nil)))
				asked, err := bridgetest.Recv(t.Context(), server)
				must(t, err)
				time.Sleep(100 * time.Millisecond)
				cancel(bridge.ErrClosing)
				answer := time.AfterFunc(c.after, func() { _ = server.Send(t.Context(), jsonrpc.NewResult(asked.ID(), nil)) })
				defer answer.Stop()
				m, err := bridgetest.Recv(t.Context(), client)
				must(t, err)
				if reason := string(m.Lookup("error", "data", "reason")); reason != c.reason {
					t.Errorf("the client got %s", m.Bytes())
				}
				must(t, <-done)
				if c.reason != "" {
					if m, err := bridgetest.Recv(t.Context(), server); err != nil || m.Method() != "notifications/cancelled" {
						t.Errorf("the server got %s, %v", m.Bytes(), err)
					}
				}
				_ = client.Close(nil)
				_ = server.Close(nil)
			})
		})
	}
}

// A notification that is being written when the bridge shuts down is not broken off: what
// comes after it could not be written any more.
func TestExchangeGraceDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientEnd := bridge.Pipe()
		server, serverEnd := bridge.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		slow := slowConn{clientEnd, make(chan struct{})}
		go func() { done <- bridge.Exchange(ctx, slow, serverEnd, bridge.PumpOptions{}) }()
		must(t, client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", nil)))
		asked, err := bridgetest.Recv(t.Context(), server)
		must(t, err)
		must(t, server.Send(t.Context(), jsonrpc.NewNotification("notifications/progress", []byte(`{"progress":1}`))))
		synctest.Wait() // it is being written
		cancel(bridge.ErrClosing)
		synctest.Wait()
		close(slow.takes)
		go func() { _ = server.Send(t.Context(), jsonrpc.NewResult(asked.ID(), nil)) }()
		for _, want := range []jsonrpc.Kind{jsonrpc.Notification, jsonrpc.Response} {
			m, err := bridgetest.Recv(t.Context(), client)
			must(t, err)
			if m.Kind() != want {
				t.Errorf("the client got %s", m.Bytes())
			}
		}
		must(t, <-done)
		_ = client.Close(nil)
		_ = server.Close(nil)
	})
}

// A client that takes nothing holds the end up for the ShutdownGrace, not longer.
func TestExchangeGraceStuckClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, clientEnd := bridge.Pipe()
		server, serverEnd := bridge.Pipe()
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			stuck := slowConn{clientEnd, make(chan struct{})}
			done <- bridge.Exchange(ctx, stuck, serverEnd, bridge.PumpOptions{ShutdownGrace: 3 * time.Second})
		}()
		must(t, client.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", nil)))
		_, err := bridgetest.Recv(t.Context(), server)
		must(t, err)
		must(t, server.Send(t.Context(), jsonrpc.NewNotification("notifications/progress", []byte(`{"progress":1}`))))
		synctest.Wait()
		began := time.Now()
		cancel(bridge.ErrClosing)
		<-done
		if took := time.Since(began); took < 3*time.Second || took > 10*time.Second {
			t.Errorf("the exchange ended %v after the bridge", took)
		}
		_ = client.Close(nil)
		_ = server.Close(nil)
	})
}

// slowConn takes a message when takes is closed.
type slowConn struct {
	bridge.Conn
	takes chan struct{}
}

func (c slowConn) Send(ctx context.Context, m jsonrpc.Message) error {
	select {
	case <-c.takes:
		return c.Conn.Send(ctx, m)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c slowConn) TrySend(jsonrpc.Message) bool { return false }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
