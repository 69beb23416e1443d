//go:build unix

package stdio_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// A Command starts a server for each Dial. This one sends back what it is sent.
func ExampleCommand() {
	command := &stdio.Command{Spec: supervisor.Spec{Name: "echo", Path: "cat"}}
	ctx := context.Background()
	conn, err := command.Dial(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := conn.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "ping", nil)); err != nil {
		log.Fatal(err)
	}
	m, err := bridge.First(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", m.Bytes())
	if err := conn.Close(nil); err != nil { // stops the process
		log.Fatal(err)
	}
	// Output: {"jsonrpc":"2.0","id":1,"method":"ping"}
}
