package stdio_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// answers is a bridge.Sink that answers each request with an empty result.
type answers struct{ to bridge.Conn }

func (a answers) TrySend(m jsonrpc.Message) bool {
	return m.Kind() != jsonrpc.Request || a.to.TrySend(jsonrpc.NewResult(m.ID(), nil))
}

func (a answers) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return a.to.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
}

// A Conn needs no more than something to read and something to write. Receive hands on
// messages until the input ends.
func ExampleNewConn() {
	input := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}
what a client writes is meant as a message, so it is told what is wrong with this line
{"jsonrpc":"2.0","id":2,"method":"ping"}
`)
	conn := stdio.NewConn(input, os.Stdout, nil, stdio.Options{Peer: stdio.Client})
	defer conn.Close(nil)
	if err := conn.Receive(context.Background(), answers{conn}); err != io.EOF {
		log.Fatal(err)
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{}}
	// {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error: expected a value at byte 0"}}
	// {"jsonrpc":"2.0","id":2,"result":{}}
}

// A SocketServer gives each connection to a bridge.Handler. A Socket is the other side.
func ExampleSocketServer() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := stdio.Socket{Network: "unix", Address: filepath.Join(dir, "socket")}
	listener, err := net.Listen(socket.Network, socket.Address)
	if err != nil {
		log.Fatal(err)
	}

	server := stdio.NewSocketServer(bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return client.Receive(ctx, answers{client})
	}), stdio.ServerOptions{})
	defer server.Close()
	go server.Serve(listener)

	ctx := context.Background()
	conn, err := socket.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(nil)
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "ping", nil)); err != nil {
		log.Fatal(err)
	}
	answer, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Bytes())
	// Output: {"jsonrpc":"2.0","id":1,"result":{}}
}
