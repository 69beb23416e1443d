package ws_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// answeringSink is a bridge.Sink that answers each request with the params of the request.
type answeringSink struct{ client bridge.Conn }

func (s answeringSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return s.client.Send(ctx, jsonrpc.NewResult(m.ID(), m.Params()))
}

func (answeringSink) TrySend(jsonrpc.Message) bool { return false } // leaves it to Send

// A Handler gives each connection to a bridge.Handler, here to one that answers by
// itself. A Client is the other end.
func ExampleHandler() {
	endpoint := ws.NewHandler(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return client.Receive(ctx, answeringSink{client})
	}), ws.HandlerOptions{})
	server := httptest.NewServer(endpoint)
	defer func() {
		endpoint.Close()
		server.Close()
	}()

	ctx := context.Background()
	client := ws.Client{URL: "ws" + strings.TrimPrefix(server.URL, "http")}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil)
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", []byte(`{"protocolVersion":"2025-11-25"}`))); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Bytes())
	// Output: {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}
}
