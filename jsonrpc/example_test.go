package jsonrpc_test

import (
	"fmt"
	"log"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Parse a message, and look at what a proxy needs of it.
func ExampleParse() {
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}`))
	if err != nil {
		log.Fatal(err) // a *jsonrpc.Error; its Reply is what to answer
	}
	fmt.Println(m.Kind() == jsonrpc.Request, m.Method(), m.ID())
	fmt.Printf("%s\n", m.Lookup("params", "name"))
	// Output:
	// true tools/call 7
	// "add"
}

// Several clients of one server may use the same id. A proxy sends each request on with an
// id of its own, and gives the answer the client's id back. Every other byte stays.
func ExampleMessage_WithID() {
	parse := func(text string) jsonrpc.Message {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			log.Fatal(err)
		}
		return m
	}
	clients := map[jsonrpc.ID]jsonrpc.ID{} // the client's id, by the proxy's

	request := parse(`{"id":"a", "jsonrpc":"2.0", "method":"ping"}`)
	own := jsonrpc.IntID(1)
	clients[own] = request.ID()
	toServer := request.WithID(own)
	fmt.Printf("%s\n", toServer.Bytes())

	answer := parse(`{"jsonrpc":"2.0", "result":{}, "id":1}`)
	toClient := answer.WithID(clients[answer.ID()])
	fmt.Printf("%s\n", toClient.Bytes())
	// Output:
	// {"id":1, "jsonrpc":"2.0", "method":"ping"}
	// {"jsonrpc":"2.0", "result":{}, "id":"a"}
}

// Decode takes a batch apart. What is no valid message is answered with an error.
func ExampleDecode() {
	batch := []byte(`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":42}]`)
	messages, faults := jsonrpc.Decode(batch, true, 50, jsonrpc.DefaultMaxDepth)
	for _, m := range messages {
		answer := jsonrpc.NewResult(m.ID(), nil)
		fmt.Printf("%s\n", answer.Bytes())
	}
	for _, fault := range faults {
		if reply, ok := fault.Reply(); ok {
			fmt.Printf("%s\n", reply.Bytes())
		}
	}
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{}}
	// {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"invalid message: the method must be a string at byte 33"}}
}
