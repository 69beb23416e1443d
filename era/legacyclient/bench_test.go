package legacyclient

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ordinaryCall returns a session and the messages of a call of about 100 B.
func ordinaryCall(tb testing.TB) (f era.Filter, call, result jsonrpc.Message) {
	tb.Helper()
	f = New(Options{})
	var out era.Out
	now := time.Unix(1_800_000_000, 0)
	parse := func(text string) jsonrpc.Message {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			tb.Fatal(err)
		}
		return m
	}
	f.Start(now, &out)
	f.FromClient(now, parse(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`), &out)
	f.FromServer(now, parse(`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"logging":{}}}}`), &out)
	text := strings.Repeat("x", 100)
	call = parse(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + text + `"},"_meta":{"progressToken":1}}}`)
	result = parse(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"` + text + `"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"S","version":"1"}}}}`)
	return f, call, result
}

// throughAndBack plays the call once.
func throughAndBack(tb testing.TB, f era.Filter, call, result jsonrpc.Message, out *era.Out) {
	now := time.Unix(1_800_000_000, 0)
	out.ToClient, out.ToServer = out.ToClient[:0], out.ToServer[:0]
	f.FromClient(now, call, out)
	if len(out.ToServer) != 1 {
		tb.Fatal("the call does not reach the server")
	}
	f.FromServer(now, result.WithID(out.ToServer[0].ID()), out)
	if len(out.ToClient) != 1 {
		tb.Fatal("the result does not reach the client")
	}
	_ = f.Due()
}

// The budget of a call over everything is 20 allocations; the Mux and the Conns need some of it.
func TestCallAllocations(t *testing.T) {
	f, call, result := ordinaryCall(t)
	var out era.Out
	n := testing.AllocsPerRun(1000, func() { throughAndBack(t, f, call, result, &out) })
	const own = 2 // the result's id
	if n-own > 12 {
		t.Errorf("%v allocations for a call, want at most 12", n-own)
	}
}

func BenchmarkCall(b *testing.B) {
	f, call, result := ordinaryCall(b)
	var out era.Out
	b.ReportAllocs()
	for b.Loop() {
		throughAndBack(b, f, call, result, &out)
	}
}
