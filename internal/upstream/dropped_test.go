package upstream

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// While it is reported that a message has reached nobody, the calls of others get
// through: no lock is held that they need.
func TestDroppedHoldsNobodyUp(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"NAME","_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	reached, told := make(chan struct{}), make(chan bool, 1)
	var second bridge.Conn
	s := scripted(t, Spec{Protocol: era.OnlyLegacy, Isolation: Shared, Dropped: func(jsonrpc.Message, string) {
		go func() { _ = second.Send(t.Context(), parse(t, strings.Replace(call, "NAME", "second", 1))) }()
		select {
		case <-reached:
			told <- true
		case <-time.After(10 * time.Second): // never, unless the test fails
			told <- false
		}
	}}, func(m jsonrpc.Message) []string {
		const done = `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`
		name, _ := jsonrpc.Text(m.Lookup("params", "name"))
		switch {
		case m.Method() == "initialize":
			return []string{`{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`}
		case m.Kind() != jsonrpc.Request:
			return nil
		case name == "noisy":
			return []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nobody's","progress":1}}`, done}
		case name == "second":
			close(reached)
		}
		return []string{done}
	})
	first := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	second = party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	for _, c := range []bridge.Conn{first, second} { // both have their place at the server
		if m := ask(t, c, strings.Replace(call, "NAME", "quiet", 1)); m.IsError() {
			t.Fatalf("%s", m.Bytes())
		}
	}
	if m := ask(t, first, strings.Replace(call, "NAME", "noisy", 1)); m.IsError() {
		t.Errorf("%s", m.Bytes())
	}
	if !<-told {
		t.Error("a call of another client waits until a dropped message is reported")
	}
}
