package jsonrpc_test

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Key finds a Message again: not one of equal bytes, and not one that was made of it.
func TestKey(t *testing.T) {
	const text = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	parse := func() jsonrpc.Message {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := parse()
	again, equal, id := m, parse(), jsonrpc.IntID(2)
	other := m.WithID(id)
	var none, invalid jsonrpc.Message
	switch {
	case m.Key() != again.Key():
		t.Error("a copy has another Key")
	case m.Key() == equal.Key():
		t.Error("a message that was parsed from equal bytes has the same Key")
	case m.Key() == other.Key():
		t.Error("a message with another id has the same Key")
	case m.Key() == none.Key(), none.Key() != invalid.Key(), none.Key() != jsonrpc.Key{}:
		t.Error("the Key of an invalid message is not the zero Key")
	}
}
