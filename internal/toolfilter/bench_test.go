package toolfilter

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A call and its answer through a Pipe, with and without the filter, and the
// filter's work on a page of a hundred tools.
func BenchmarkFilter(b *testing.B) {
	call := parse(b, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"text":"`+strings.Repeat("x", 1000)+`"}}}`)
	answer := jsonrpc.NewResult(jsonrpc.IntID(1), []byte(`{"content":[]}`))
	for name, rules := range map[string]Rules{"without": {}, "with": {Ignore: []string{"h*"}}} {
		b.Run("call/"+name, func(b *testing.B) {
			c, server := dial(b, rules)
			go func() {
				for {
					if _, err := server.Recv(b.Context()); err != nil {
						return
					}
					if server.Send(b.Context(), answer) != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Send(b.Context(), call); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Recv(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("notifications/"+name, func(b *testing.B) {
			c, server := dial(b, rules)
			note := jsonrpc.NewNotification("notifications/message", []byte(`{"data":"`+strings.Repeat("x", 60)+`"}`))
			go func(server bridge.PullConn) {
				for server.Send(b.Context(), note) == nil {
				}
			}(server)
			for b.Loop() {
				if _, err := c.Recv(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	tool := `{"name":"tool","description":"` + strings.Repeat("d", 200) + `","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}},`
	page := parse(b, `{"jsonrpc":"2.0","id":1,"result":{"tools":[`+strings.Repeat(tool, 99)+`{"name":"hidden"}]}}`)
	f := hiding(b, "h*")
	b.Run("page", func(b *testing.B) {
		b.SetBytes(int64(len(page.Bytes())))
		b.ReportAllocs()
		for b.Loop() {
			f.fromServer(page)
		}
	})
}
