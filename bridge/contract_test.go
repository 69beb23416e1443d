package bridge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// onlyClient is the only client of a Mux, which ends with it.
type onlyClient struct {
	bridge.PullConn
	mux *bridge.Mux
}

func (c onlyClient) Close() error {
	_ = c.PullConn.Close()
	return c.mux.Close()
}

// uncancelled is a server's Conn that does not see what the Mux itself says.
type uncancelled struct{ bridge.PullConn }

func (c uncancelled) Recv(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if m, err := c.PullConn.Recv(ctx); err != nil || m.Method() != "notifications/cancelled" {
			return m, err
		}
	}
}

// A Mux's Conn keeps the contract of every Conn.
func TestMuxContract(t *testing.T) {
	for name, wrap := range map[string]func(bridge.PullConn) bridge.PullConn{
		"direct": func(c bridge.PullConn) bridge.PullConn { return c },
		"queued": func(c bridge.PullConn) bridge.PullConn { return struct{ bridge.PullConn }{c} },
		"fed": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(bridge.Translate(bridge.Push(c), passing{}, nil))
		},
	} {
		t.Run(name, func(t *testing.T) { testMuxContract(t, wrap) })
	}
}

func testMuxContract(t *testing.T, wrap func(bridge.PullConn) bridge.PullConn) {
	bridgetest.TestPull(t, func(t *testing.T) (a, b bridge.PullConn, stop func()) {
		servers := newServers()
		servers.wrap = wrap
		mux := bridge.NewMux(bridge.MuxOptions{Dialer: servers})
		client, err := bridge.PullDialed(mux.Dial(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		// What the suite sends are log messages: a call must have asked for them.
		open := parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}}`)
		if err := client.Send(t.Context(), open); err != nil {
			t.Fatal(err)
		}
		server := <-servers.next
		if _, err := server.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
		return onlyClient{client, mux}, uncancelled{server}, nil
	}, bridgetest.Options{
		NoEOF:       "a", // the end of a server is not that of its clients:
		LateSends:   "a", // the next one takes what they send
		CloseAborts: "a", // the Mux does, not the client's PullConn
	})
}

// passing is a Filter that changes nothing.
type passing struct{}

func (passing) Start(time.Time, *era.Out)                               {}
func (passing) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Server(m) }
func (passing) FromServer(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Client(m) }
func (passing) Due() time.Time                                          { return time.Time{} }
func (passing) Tick(time.Time, *era.Out)                                {}
func (passing) ServerEnded(now time.Time, err error, out *era.Out)      {}

// Translate keeps the contract on all the ways that messages may take through it.
func TestTranslateContract(t *testing.T) {
	for name, make := range map[string]func(server bridge.PullConn) bridge.PullConn{
		"read": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(bridge.Translate(bridge.Push(c), passing{}, nil))
		},
		"fed": func(c bridge.PullConn) bridge.PullConn {
			return newFed(bridge.Pull(bridge.Translate(bridge.Push(c), passing{}, nil)))
		},
		"polled": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(bridge.Translate(bridge.Push(newPolled(c)), passing{}, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestPull(t, func(*testing.T) (a, b bridge.PullConn, stop func()) {
				a, b = bridge.PullPipe()
				return make(a), b, nil
			}, bridgetest.Options{})
		})
	}
}

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
					ours = bridge.Pull(bridge.Translate(bridge.Push(newPolled(ours)), passing{}, nil))
				}
				conns, leave, done := make(chan bridge.PullConn, 2), make(chan struct{}), make(chan struct{})
				h := bridge.PullHandler(func(_ context.Context, client bridge.PullConn) error {
					conns <- client
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
