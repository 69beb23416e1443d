package bridge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// bothHalves is one half of a ByEra's client that is closed with the other.
type bothHalves struct {
	bridge.PullConn
	other bridge.PullConn
}

func (b bothHalves) Close() error {
	_ = b.other.Close()
	return b.PullConn.Close()
}

// What a Handler of ByEra gets is a Conn like any other, also while the other
// Handler runs.
func TestByEraContract(t *testing.T) {
	for name, firsts := range map[string][]string{
		"alone": {initializeZero}, "both": {initializeZero, modernOne}, "alone, offered": {initializeZero}, "both, offered": {initializeZero, modernOne},
	} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestPull(t, func(t *testing.T) (a, b bridge.PullConn, stop func()) {
				ours, theirs := bridge.PullPipe()
				if strings.HasSuffix(name, "offered") { // in the goroutine of who has sent it
					x, y := bridge.Pipe()
					ours, theirs = bridge.Pull(x), bridgetest.Pull(y)
				}
				conns, leave, done := make(chan bridge.PullConn, 2), make(chan struct{}), make(chan struct{})
				h := bridge.HandlerFunc(func(_ context.Context, client bridge.Conn) error {
					conns <- bridgetest.Pull(client)
					<-leave
					return nil
				})
				go func() {
					defer close(done)
					_ = bridge.ByEra(h, h).ServeConn(context.Background(), bridge.Push(ours))
				}()
				for _, text := range firsts {
					if err := theirs.Send(t.Context(), parse(t, text)); err != nil {
						t.Fatal(err)
					}
				}
				legacy := <-conns
				if _, err := legacy.Recv(t.Context()); err != nil {
					t.Fatal(err)
				}
				a = legacy
				if len(firsts) > 1 {
					ctx, cancel := context.WithCancel(t.Context())
					reading := make(chan struct{})
					go func() {
						defer close(reading)
						_, _ = legacy.Recv(ctx) // which finds the other's message
					}()
					modern := <-conns
					if _, err := modern.Recv(t.Context()); err != nil {
						t.Fatal(err)
					}
					cancel()
					<-reading
					a = bothHalves{legacy, modern}
				}
				return a, theirs, func() {
					close(leave)
					<-done
				}
			}, bridgetest.Options{})
		})
	}
}
