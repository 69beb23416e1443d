package era

import (
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// J10, D.1: between two legacy sides that share a server errors are translated
// twice. The code that the server has said arrives, with what it has said about it.
func TestErrorsBetweenLegacySides(t *testing.T) {
	server := LegacyServer(LegacyServerOptions{})
	client := LegacyClient(LegacyClientOptions{}).(*legacyClient)
	for _, c := range []struct{ method, failure, arrives string }{
		{"tools/call", `{"code":-32002,"message":"no"}`, ""},
		{"tools/call", `{"code":-32002,"message":"no","data":{"uri":"a:c","x":1.0}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no","data":{"uri":"a:b"}}`, ""},
		{"resources/read", `{"code":-32002,"message":"no"}`, `{"code":-32002,"message":"no","data":{"uri":"a:b"}}`},
		{"resources/read", `{"code":-32002,"message":"no","data":[7]}`, ""},
		{"resources/read", `{"code":-32602,"message":"no"}`, ""},
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
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + c.method + `","params":{"uri":"a:b"}}`))
		if err != nil {
			t.Fatal(err)
		}
		failure, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":5,"error":` + c.failure + `}`))
		if err != nil {
			t.Fatal(err)
		}
		between := server.failure(time.Now(), &serverCall{request: request{id: m.ID(), m: m, method: c.method}}, failure)
		if code := errorCode(between); code == CodeResourceNotFound || code == CodeURLElicitation {
			t.Errorf("%s %s: 2026-07-28 has no such error: %s", c.method, c.failure, between.Bytes()) // J10
		}
		var out Out
		client.failed(&clientCall{id: m.ID(), m: m, method: c.method}, between, &out)
		want := c.arrives
		if want == "" {
			want = c.failure
		}
		if got := string(out.ToClient[0].ErrorObject()); got != want {
			t.Errorf("%s %s: %s arrives", c.method, c.failure, got)
		}
	}
}
