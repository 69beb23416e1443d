package legacysse_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
	"github.com/mcp-bridge/mcp-bridge/legacysse/sseclient"
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

// A Handler has two endpoints. It gives each session to a bridge.Handler, here to one that
// answers by itself. The client is of package sseclient.
func ExampleHandler() {
	sessions := legacysse.NewHandler(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return client.Receive(ctx, answeringSink{client})
	}), legacysse.HandlerOptions{})
	paths := http.NewServeMux()
	paths.HandleFunc("/sse", sessions.ServeSSE)
	paths.HandleFunc("/message", sessions.ServeMessage) // the address that ServeSSE tells clients
	server := httptest.NewServer(legacysse.Deadlines{}.Handler(paths))
	defer func() {
		sessions.Close() // first: it ends the streams, which server.Close waits for
		server.Close()
	}()

	ctx := context.Background()
	client := sseclient.Client{URL: server.URL + "/sse"}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil)
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", []byte(`{"protocolVersion":"2024-11-05"}`))); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Bytes())
	// Output: {"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"}}
}
