package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// The list of tools may be asked for while the server says that it has changed.
func TestForgetWhileFetching(t *testing.T) {
	s, err := New(Spec{Name: "x", Command: supervisor.Spec{Path: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := s.table(unitKey{})
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				s.forgetTools()
			}
		}
	})
	for range 20_000 {
		f := s.fetching(t.Context(), table, func(context.Context) (*member, error) { return nil, errClosed }, era.Meta{})
		if f == nil {
			t.Fatal("the server is closed")
		}
		<-f.done
	}
	close(over)
	wg.Wait()
}

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
