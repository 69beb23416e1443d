package mux_test

import (
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Whoever observes both sides sees which message was made of which: ids, progress tokens and
// subscription ids change, marks do not.
func TestMuxMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMux(t, mux.Options{})
		a := x.dial()
		seq := uint64(0)
		passes := func(from, to bridge.Conn, text string) jsonrpc.Message {
			t.Helper()
			seq++
			mark := &jsonrpc.Mark{Seq: seq}
			m := parse(t, text).WithMark(mark)
			go func() { _ = from.Send(t.Context(), m) }()
			if x.server == nil {
				x.up()
				to = x.server
			}
			got, err := bridgetest.Recv(t.Context(), to)
			if err != nil || got.Mark() != mark {
				t.Errorf("%s became %s with the mark %v, %v", text, got.Bytes(), got.Mark(), err)
			}
			return got
		}
		call := passes(a, nil, `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"_meta":{"progressToken":"p"}}}`)
		passes(x.server, a, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`+call.ProgressToken().String()+`,"progress":1}}`)
		passes(x.server, a, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		passes(a, x.server, listenCall(`"l"`))
		passes(x.server, a, ack("2", `{"toolsListChanged":true}`))
		passes(x.server, a, changed("tools/list_changed", "2", ""))
		passes(a, x.server, `{"jsonrpc":"2.0","id":"y","method":"tools/call"}`)
		passes(a, x.server, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"y"}}`)
	})
}
