package bridge_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func parse(t *testing.T, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func call(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call"}` }

func cancelledNote(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func changed(what, id, more string) string {
	return `{"jsonrpc":"2.0","method":"notifications/` + what + `","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}` + more + `}}`
}

func vendor(n int) jsonrpc.Message {
	return jsonrpc.NewNotification("notifications/vendor", fmt.Appendf(nil, `{"n":%d}`, n))
}

// echo answers each request of a Conn at once.
func echo(c bridge.Conn, result []byte) {
	for {
		m, err := bridgetest.Recv(context.Background(), c)
		if err != nil {
			return
		}
		if m.Kind() == jsonrpc.Request && c.Send(context.Background(), jsonrpc.NewResult(m.ID(), result)) != nil {
			return
		}
	}
}

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }
