//go:build unix

package bridge_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// Serve is a whole bridge: each client of a listening transport, here Streamable HTTP,
// gets a server of its own, here a process.
func ExampleServe() {
	command := &stdio.Command{Spec: supervisor.Spec{
		Path: "sh", Args: []string{"-c", `while read -r line; do echo '{"jsonrpc":"2.0","id":1,"result":{}}'; done`},
	}}
	endpoint := streamhttp.NewHandler(bridge.Serve(command, bridge.PumpOptions{}), streamhttp.HandlerOptions{})
	server := httptest.NewServer(streamhttp.Deadlines{}.Handler(endpoint))
	defer func() {
		endpoint.Close() // stops the processes
		server.Close()
	}()

	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	request, err := http.NewRequest("POST", server.URL, strings.NewReader(initialize))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", body)
	// Output: {"jsonrpc":"2.0","id":1,"result":{}}
}
