package streamclient_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

// exampleServer answers every request in plain JSON.
func exampleServer() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed) // no stream of its own
			return
		}
		body, _ := io.ReadAll(r.Body)
		m, err := jsonrpc.Parse(body)
		if err != nil || m.Kind() != jsonrpc.Request {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result := jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete","method":"`+m.Method()+`"}`))
		_, _ = w.Write(result.Bytes())
	}))
}

// A Client connects to a server with sessions. The first request is initialize.
func ExampleClient() {
	server := exampleServer()
	defer server.Close()
	ctx := context.Background()
	client := streamclient.Client{URL: server.URL}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil)
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize",
		[]byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`))); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Lookup("result", "method"))
	// Output: "initialize"
}

// A ModernClient needs no initialize: each request says in its _meta who asks.
func ExampleModernClient() {
	server := exampleServer()
	defer server.Close()
	ctx := context.Background()
	client := streamclient.ModernClient{URL: server.URL}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil)
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "prompts/list", []byte(`{"_meta":{
		"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},
		"io.modelcontextprotocol/clientCapabilities":{}}}`))); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Lookup("result", "method"))
	// Output: "prompts/list"
}
