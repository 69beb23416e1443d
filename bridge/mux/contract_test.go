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
	bridge.Conn
	mux *mux.Mux
}

func (c onlyClient) Close(reason error) error {
	_ = c.Conn.Close(reason)
	return c.mux.Close()
}

// withoutCancelled returns a server's Conn that does not see what the Mux itself says.
func withoutCancelled(c bridge.Conn) bridge.Conn {
	return bridge.Intercept(c, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
		if m.Method() == "notifications/cancelled" {
			*m = jsonrpc.Message{}
		}
		return nil
	}})
}

// A Mux's Conn keeps the contract of every Conn.
func TestMuxContract(t *testing.T) {
	for name, wrap := range map[string]func(bridge.Conn) bridge.Conn{
		"plain":      func(c bridge.Conn) bridge.Conn { return c },
		"translated": func(c bridge.Conn) bridge.Conn { return translate.Wrap(c, bridgetest.PassingFilter{}, nil) },
	} {
		t.Run(name, func(t *testing.T) { testMuxContract(t, wrap) })
	}
}

func testMuxContract(t *testing.T, wrap func(bridge.Conn) bridge.Conn) {
	bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
		server, ours := bridge.Pipe()
		x := mux.New(mux.Options{Dialer: dialFunc(func(context.Context) (bridge.Conn, error) { return wrap(ours), nil })})
		client, err := x.Dial(t.Context())
		bridgetest.Must(t, err)
		// What the suite sends are log messages: a call must have asked for them.
		open := parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}}`)
		bridgetest.Must(t, client.Send(t.Context(), open))
		if _, err := bridgetest.Recv(t.Context(), server); err != nil {
			t.Fatal(err)
		}
		return onlyClient{client, x}, withoutCancelled(server), nil
	}, bridgetest.Options{
		NoEOFAt:       "a", // the end of a server is not that of its clients:
		LateSendsAt:   "a", // the next one takes what they send
		CloseAbortsAt: "a", // the Mux does, not the client's Conn
		InBubble:      true,
	})
}
