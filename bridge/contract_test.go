package bridge_test

import (
	"context"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// What a Handler of ByEra gets is a Conn like any other, also while the other
// Handler runs.
func TestByEraContract(t *testing.T) {
	for name, firsts := range map[string][]string{"alone": {initializeZero}, "both": {initializeZero, modernOne}} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
				ours, theirs := bridge.Pipe()
				conns, leave, done := make(chan bridge.Conn, 2), make(chan struct{}), make(chan struct{})
				h := bridge.HandlerFunc(func(_ context.Context, client bridge.Conn) error {
					conns <- client
					<-leave
					return nil
				})
				go func() {
					defer close(done)
					_ = bridge.ByEra(h, h).ServeConn(context.Background(), ours)
				}()
				for _, text := range firsts {
					must(t, theirs.Send(t.Context(), parse(t, text)))
				}
				a = <-conns
				takes(t, a)
				if len(firsts) > 1 {
					ctx, cancel := context.WithCancel(t.Context())
					reading := make(chan struct{})
					go func() {
						defer close(reading)
						_ = a.Receive(ctx, stuck{}) // which finds the other's message
					}()
					modern := <-conns
					takes(t, modern)
					cancel()
					<-reading
					a = closedWith{a, modern}
				}
				return a, theirs, func() {
					close(leave)
					<-done
				}
			}, bridgetest.Options{InBubble: true})
		})
	}
}

// closedWith is one half of a ByEra's client that is closed with the other.
type closedWith struct {
	bridge.Conn
	other bridge.Conn
}

func (c closedWith) Close(reason error) error {
	_ = c.other.Close(reason)
	return c.Conn.Close(reason)
}

func takes(t *testing.T, c bridge.Conn) {
	t.Helper()
	if _, err := bridgetest.Recv(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}
