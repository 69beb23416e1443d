package mux_test

import (
	"context"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// onlyClient is the only client of a Mux, which ends with it.
type onlyClient struct {
	bridge.PullConn
	mux *mux.Mux
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
			return bridge.Pull(translate.Wrap(bridge.Push(c), passing{}, nil))
		},
	} {
		t.Run(name, func(t *testing.T) { testMuxContract(t, wrap) })
	}
}

func testMuxContract(t *testing.T, wrap func(bridge.PullConn) bridge.PullConn) {
	bridgetest.TestPull(t, func(t *testing.T) (a, b bridge.PullConn, stop func()) {
		servers := newServers()
		servers.wrap = wrap
		mux := mux.New(mux.Options{Dialer: servers})
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
