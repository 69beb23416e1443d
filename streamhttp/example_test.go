package streamhttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

// echoSink is a bridge.Sink that answers each request with the params of the request.
type echoSink struct{ client bridge.Conn }

func (e echoSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return e.client.Send(ctx, jsonrpc.NewResult(m.ID(), m.Params()))
}

func (echoSink) TrySend(jsonrpc.Message) bool { return false } // leaves it to Send

// receivedSink is a bridge.Sink that collects messages.
type receivedSink chan jsonrpc.Message

func (r receivedSink) Send(ctx context.Context, m jsonrpc.Message) error {
	select {
	case r <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (receivedSink) TrySend(jsonrpc.Message) bool { return false }

// A Handler gives each session to a bridge.Handler, here to an echo; bridge.Serve makes
// one that passes the session on to a server. The client is of package streamclient.
func ExampleHandler() {
	endpoint := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return client.Receive(ctx, echoSink{client})
	}), streamhttp.HandlerOptions{})
	server := httptest.NewServer(streamhttp.Deadlines{}.Handler(endpoint))
	defer func() {
		endpoint.Close() // first: it ends the sessions, whose streams server.Close waits for
		server.Close()
	}()

	ctx := context.Background()
	client := streamclient.Client{URL: server.URL}
	conn, err := client.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil) // ends the session
	answers := make(receivedSink)
	go conn.Receive(ctx, answers)

	say := func(m jsonrpc.Message) {
		if err := conn.Send(ctx, m); err != nil {
			log.Fatal(err)
		}
	}
	say(jsonrpc.NewRequest(jsonrpc.IntID(1), "initialize",
		[]byte(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)))
	<-answers
	say(jsonrpc.NewNotification("notifications/initialized", nil))
	say(jsonrpc.NewRequest(jsonrpc.IntID(2), "tools/call", []byte(`{"name":"add"}`)))
	answer := <-answers
	fmt.Printf("%s\n", answer.Bytes())
	fmt.Println("sessions:", endpoint.Sessions())
	// Output:
	// {"jsonrpc":"2.0","id":2,"result":{"name":"add"}}
	// sessions: 1
}
