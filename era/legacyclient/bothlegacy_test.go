package legacyclient

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// J10, D.1: between two legacy sides that share a server errors are translated
// twice. The code that the server has said arrives, with what it has said about it.
func TestErrorsBetweenLegacySides(t *testing.T) {
	server := openLegacyServer(t)
	client := New(Options{}).(*filter)
	for _, c := range []struct{ method, failure, arrives string }{
		{"tools/call", `{"code":-32002,"message":"no"}`, ""},
		{"tools/call", `{"code":-32002,"message":"no","data":{"uri":"a:c","x":1.0}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"uri":"a:b"}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no"}`, `{"code":-32002,"message":"no","data":{"uri":"a:b"}}`},
		{"resources/read", `{"code":-32002,"message":"no","data":[7]}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"uri":"a:c","x":1.0}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"uri":null}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"uri":"a:\u0062"}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"x":1}}`, `{"code":-32002,"message":"no","data":{"x":1,"uri":"a:b"}}`},
		{"resources/read", `{"code":-32002,"message":"no","data":null}`, ""},
		{"resources/read", `{"code":-32602,"message":"no"}`, ""},
		{"resources/read", `{"code":-32602,"message":"no","data":{"uri":"a:c"}}`, ""},
		{"tools/call", `{"code":-32050,"message":"a\u0062"}`, ""},
		{"tools/call", `{"code":-32050,"message":"no","data":"x"}`, ""},
		{"prompts/get", `{"code":-32042,"message":"go","data":{"elicitations":[]}}`, ""},
		{"completion/complete", `{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://example.com"}]}}`, ""},
		{"tools/call", `{"code":-32020,"message":"no"}`, ""},
		{"tools/call", `{"code":-32000,"message":"no","data":{"x":1}}`, ""},
		{"tools/call", `{"code":7,"message":"no"}`, ""},

		// What a server itself calls originalCode is its own.
		{"resources/read", `{"code":-32603,"message":"no","data":{"originalCode":-32002,"x":1}}`, ""},
		{"tools/call", `{"code":-32602,"message":"no","data":{"originalCode":-32050}}`, ""},
		{"tools/call", `{"code":-32000,"message":"no","data":{"originalCode":-32002}}`, ""},
		{"tools/call", `{"code":-32603,"message":"no","data":{"originalCode":-32603}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"originalCode":-32002,"uri":"a:b"}}`, ""},
		{"tools/call", `{"code":-32050,"message":"no","data":{"originalCode":5,"x":1}}`, ""},
		{"tools/call", `{"code":-32050,"message":"no","data":{"originalData":"x"}}`, ""},
		{"tools/call", `{"code":-32050,"message":"no","data":{}}`, ""},
		{"tools/call", `{"code":-32050,"message":"no","data":null}`, ""},
	} {
		between, got := betweenLegacySides(t, server, client, c.method, `{"uri":"a:b"}`, c.failure)
		if code := shape.ErrorCode(between); code == era.CodeResourceNotFound || code == era.CodeURLElicitation {
			t.Errorf("%s %s: 2026-07-28 has no such error: %s", c.method, c.failure, between.Bytes()) // J10
		}
		want := c.arrives
		if want == "" {
			want = c.failure
		}
		if got != want {
			t.Errorf("%s %s: %s arrives", c.method, c.failure, got)
		}
	}
}

// J10: a resource without a name cannot be named to the client.
func TestNoResourceWithoutURI(t *testing.T) {
	server := openLegacyServer(t)
	client := New(Options{}).(*filter)
	for _, params := range []string{`{}`, `{"uri":null}`, `{"uri":5}`} {
		const failure = `{"code":-32002,"message":"no"}`
		between, got := betweenLegacySides(t, server, client, "resources/read", params, failure)
		if want := `{"code":-32602,"message":"no","data":{"originalCode":-32002}}`; string(between.ErrorObject()) != want {
			t.Errorf("%s: %s between them", params, between.ErrorObject())
		}
		if got != failure {
			t.Errorf("%s: %s arrives", params, got)
		}
	}
}

// betweenLegacySides returns what an error of a server is in 2026-07-28, and what
// arrives of it at a legacy client.
func betweenLegacySides(t *testing.T, server era.Filter, client *filter, method, params, failure string) (between jsonrpc.Message, arrives string) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	m := eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},`
	modern := m.WithParams([]byte(strings.Replace(strings.Replace(params, "{", meta, 1), ",}", "}", 1)))
	var out era.Out
	server.FromClient(now, modern, &out)
	server.FromServer(now, eratest.Parse(t, `{"jsonrpc":"2.0","id":`+out.ToServer[0].ID().String()+`,"error":`+failure+`}`), &out)
	between = out.ToClient[0]
	out = era.Out{}
	client.calls.handleError(&call{id: m.ID(), m: m, method: method}, between, &out)
	return between, string(out.ToClient[0].ErrorObject())
}

// openLegacyServer returns the filter of a server that has answered initialize.
func openLegacyServer(t *testing.T) era.Filter {
	t.Helper()
	f := legacyserver.New(legacyserver.Options{})
	now := time.Unix(1_800_000_000, 0)
	f.Start(now, &era.Out{})
	f.FromServer(now, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`), &era.Out{})
	return f
}
