package translate_test

import (
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What a filter says has the mark of the message that made it say so, or the one that it had.
func TestTranslateMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held jsonrpc.Message
		client, server := newTranslated(t, &script{
			fromClient: func(m jsonrpc.Message, out *era.Out) {
				if held.Kind() == jsonrpc.Invalid {
					held = m
				}
				out.Client(vendor(1))
				out.Server(vendor(2))
			},
			fromServer: func(_ jsonrpc.Message, out *era.Out) { out.Server(held); out.Client(vendor(3)) },
		})
		marks := []*jsonrpc.Mark{{Seq: 1}, {Seq: 2}}
		wants := func(c bridge.Conn, want *jsonrpc.Mark) {
			t.Helper()
			m, err := bridgetest.Recv(t.Context(), c)
			if err != nil || m.Mark() != want {
				t.Errorf("%s has the mark %v, want %v; %v", m.Bytes(), m.Mark(), want, err)
			}
		}
		bridgetest.Must(t, client.Send(t.Context(), vendor(0).WithMark(marks[0])))
		wants(client, marks[0])
		wants(server, marks[0])
		bridgetest.Must(t, server.Send(t.Context(), vendor(0).WithMark(marks[1])))
		wants(server, marks[0])
		wants(client, marks[1])
		bridgetest.Must(t, client.Send(t.Context(), vendor(0)))
		wants(client, nil)
		wants(server, nil)
		for !client.TrySend(vendor(0).WithMark(marks[0])) {
			synctest.Wait()
		}
		wants(client, marks[0])
		wants(server, marks[0])
	})
}
