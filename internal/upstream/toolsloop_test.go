package upstream

import (
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// MI22: a server that says with each list that it has changed is not asked again
// and again.
func TestToolsChangeWithEachList(t *testing.T) {
	var lists atomic.Int64
	s := scripted(t, Spec{Protocol: era.OnlyLegacy}, func(m jsonrpc.Message) []string {
		switch m.Method() {
		case "initialize":
			return []string{`{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}}`}
		case "tools/list":
			lists.Add(1)
			return []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","id":ID,"result":` + annotated("A") + `}`}
		}
		return nil
	})
	_, _ = s.ToolSchema(t.Context(), parse(t, modernCall), "x")
	if n := lists.Load(); n == 0 || n > 2 {
		t.Errorf("for one call it was asked for %d lists", n)
	}
}
