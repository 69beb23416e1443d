package bridge_test

import (
	"context"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// printer is a Sink that prints what it takes.
type printer struct{ took chan struct{} }

func (p printer) Send(_ context.Context, m jsonrpc.Message) error {
	fmt.Printf("%s\n", m.Bytes())
	p.took <- struct{}{}
	return nil
}

func (printer) TrySend(jsonrpc.Message) bool { return false }

// pong is a Sink that answers each request on the Conn that it came from.
type pong struct{ bridge.Conn }

func (p pong) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return p.Conn.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
}

func (pong) TrySend(jsonrpc.Message) bool { return false }

// A Pump copies between two Conns, here of Pipes, whose other ends are a client and a
// server.
func ExamplePump() {
	ctx := context.Background()
	client, clientSide := bridge.Pipe()
	serverSide, server := bridge.Pipe()
	go server.Receive(ctx, pong{server})
	over := make(chan error, 1)
	go func() { over <- bridge.Pump(ctx, clientSide, serverSide, bridge.PumpOptions{}) }()

	p := printer{make(chan struct{}, 1)}
	go client.Receive(ctx, p)
	_ = client.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "ping", nil))
	<-p.took
	_ = client.Close(nil)
	fmt.Println(<-over)
	_ = server.Close(nil)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{}}
	// <nil>
}

// A Handler serves one client. Listening transports call it for each session.
func ExampleHandler() {
	h := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return client.Receive(ctx, pong{client})
	})

	ctx := context.Background()
	client, session := bridge.Pipe()
	over := make(chan error, 1)
	go func() { over <- h.ServeConn(ctx, session) }()
	p := printer{make(chan struct{}, 1)}
	go client.Receive(ctx, p)
	_ = client.Send(ctx, jsonrpc.NewRequest(jsonrpc.StringID("a"), "ping", nil))
	<-p.took
	_ = client.Close(nil)
	fmt.Println(<-over)
	// Output:
	// {"jsonrpc":"2.0","id":"a","result":{}}
	// EOF
}
