package sseclient_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/sseclient"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

// A Client needs the address of the event stream. The stream tells it where to POST.
func ExampleClient() {
	answers := make(chan []byte, 1)
	paths := http.NewServeMux()
	paths.HandleFunc("GET /sse", func(w http.ResponseWriter, r *http.Request) {
		stream := sse.NewWriter(w, 10*time.Second)
		stream.Begin()
		stream.Event(sse.Event{Name: "endpoint", Data: []byte("/message")})
		_ = stream.Flush()
		for {
			select {
			case answer := <-answers:
				stream.Event(sse.Event{Name: "message", Data: answer})
				_ = stream.Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	paths.HandleFunc("POST /message", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		if m, err := jsonrpc.Parse(body); err == nil && m.Kind() == jsonrpc.Request {
			answer := jsonrpc.NewResult(m.ID(), nil)
			answers <- answer.Bytes()
		}
	})
	server := httptest.NewServer(paths)
	defer server.Close()

	ctx := context.Background()
	client := sseclient.Client{URL: server.URL + "/sse"}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil) // ends the event stream
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize", []byte(`{"protocolVersion":"2024-11-05"}`))); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Bytes())
	// Output: {"jsonrpc":"2.0","id":1,"result":{}}
}
