package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What is kept of open requests counts for who has sent them, until they are
// answered: a client for whom there is no more room is told so, others go on.
func TestPumpBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(256 << 10)
		talk := func(party string) (client, server bridgetest.PullConn) {
			client, near := bridgetest.Pipe()
			far, server := bridgetest.Pipe()
			ctx, cancel := context.WithCancel(identity.WithParty(t.Context(), party))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = bridge.Pump(ctx, bridgetest.Push(near), bridgetest.Push(far), bridge.PumpOptions{Budget: memory})
			}()
			t.Cleanup(func() {
				cancel()
				client.Close()
				server.Close()
				<-ended
			})
			return client, server
		}
		ask := func(client bridgetest.PullConn, id int) {
			m := jsonrpc.NewRequest(jsonrpc.StringID(fmt.Sprint(strings.Repeat("i", 1000), id)), "x", nil)
			if err := client.Send(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		greedy, busy := talk("a")
		go func() { // a server that takes everything and answers nothing
			for {
				if _, err := busy.Recv(context.Background()); err != nil {
					return
				}
			}
		}()
		refused := make(chan jsonrpc.Message, 1)
		go func() {
			if no, err := greedy.Recv(context.Background()); err == nil {
				refused <- no
			}
		}()
		var no jsonrpc.Message
		for id := 0; id < 100 && no.Kind() == jsonrpc.Invalid; id++ {
			ask(greedy, id)
			synctest.Wait()
			select {
			case no = <-refused:
			default:
			}
		}
		if !no.IsError() || string(no.Lookup("error", "data", "reason")) != `"busy"` {
			t.Errorf("what is too much is answered %s", no.Bytes())
		}
		other, server := talk("b")
		ask(other, 1)
		m, err := server.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Send(t.Context(), jsonrpc.NewResult(m.ID(), nil)); err != nil {
			t.Fatal(err)
		}
		if yes, err := other.Recv(t.Context()); err != nil || yes.IsError() {
			t.Errorf("another is answered %s, %v", yes.Bytes(), err)
		}
	})
}
