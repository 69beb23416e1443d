package era_test

import (
	"fmt"
	"log"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyclient"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func parse(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		log.Fatal(err)
	}
	return m
}

// A server tells the eras apart by the _meta of a request, and refuses a modern request
// whose _meta is not complete.
func ExampleMeta_Check() {
	for _, m := range []jsonrpc.Message{
		parse(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
		parse(`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`),
	} {
		meta := era.MetaOf(m)
		if !meta.IsModern() {
			fmt.Println(m.ID(), "is legacy")
			continue
		}
		if refusal := meta.Check(era.Auto); refusal != nil {
			answer := refusal.Response(m.ID())
			fmt.Printf("%s\n", answer.Bytes())
		}
	}
	// Output:
	// 1 is legacy
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"params._meta needs io.modelcontextprotocol/clientCapabilities, an object"}}
}

// A Filter gets each message with the time, and says what to send. This one makes a legacy
// client look modern: its initialize becomes server/discover.
func ExampleFilter() {
	filter := legacyclient.New(legacyclient.Options{})
	now := time.Now()
	var out era.Out
	filter.Start(now, &out)
	filter.FromClient(now, parse(`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`), &out)
	for _, m := range out.ToServer {
		fmt.Println("to the server:", m.Method())
	}

	discover := out.ToServer[0]
	out = era.Out{}
	filter.FromServer(now, jsonrpc.NewResult(discover.ID(), []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)), &out)
	for _, m := range out.ToClient {
		fmt.Printf("to the client: id %s, version %s\n", m.ID(), m.Lookup("result", "protocolVersion"))
	}
	// Output:
	// to the server: server/discover
	// to the client: id "a", version "2025-11-25"
}
