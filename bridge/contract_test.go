package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// passing is a Filter that changes nothing.
type passing struct{}

func (passing) Start(time.Time, *era.Out)                               {}
func (passing) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Server(m) }
func (passing) FromServer(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Client(m) }
func (passing) Due() time.Time                                          { return time.Time{} }
func (passing) Tick(time.Time, *era.Out)                                {}
func (passing) ServerEnded(now time.Time, err error, out *era.Out)      {}

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
				if strings.HasSuffix(name, "offered") {
					ours = bridge.Pull(translate.Wrap(bridge.Push(newPolled(ours)), passing{}, nil))
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
