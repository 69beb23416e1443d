package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What is kept of open requests counts for who has sent them, until they are
// answered: a client for whom there is no more room is told so, others go on.
func TestPumpBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(256 << 10)
		talk := func(party string) (client, server bridge.Conn) {
			client, near := bridge.Pipe()
			far, server := bridge.Pipe()
			ctx, cancel := context.WithCancel(identity.WithParty(t.Context(), party))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = bridge.Pump(ctx, near, far, bridge.PumpOptions{Budget: memory})
			}()
			t.Cleanup(func() {
				cancel()
				client.Close(nil)
				server.Close(nil)
				<-ended
			})
			return client, server
		}
		ask := func(client bridge.Conn, id int) {
			m := jsonrpc.NewRequest(jsonrpc.StringID(fmt.Sprint(strings.Repeat("i", 1000), id)), "x", nil)
			bridgetest.Must(t, client.Send(t.Context(), m))
		}
		greedy, busy := talk("a")
		go func() { // a server that takes everything and answers nothing
			for {
				if _, err := bridgetest.Recv(context.Background(), busy); err != nil {
					return
				}
			}
		}()
		refused := make(chan jsonrpc.Message, 1)
		go func() {
			if no, err := bridgetest.Recv(context.Background(), greedy); err == nil {
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
		m, err := bridgetest.Recv(t.Context(), server)
		bridgetest.Must(t, err)
		bridgetest.Must(t, server.Send(t.Context(), jsonrpc.NewResult(m.ID(), nil)))
		if yes, err := bridgetest.Recv(t.Context(), other); err != nil || yes.IsError() {
			t.Errorf("another is answered %s, %v", yes.Bytes(), err)
		}
	})
}
