package httpdial

import (
	"net/http"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LE14: what acts, or might, is never sent twice; what does no harm is left to
// net/http to send again when a kept connection was closed under it.
func TestAllowReplay(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`:       false,
		`{"jsonrpc":"2.0","id":1,"method":"vendor/act"}`:                             false,
		`{"jsonrpc":"2.0","id":1,"method":"tasks/cancel"}`:                           false,
		`{"jsonrpc":"2.0","id":1,"method":"initialize"}`:                             true,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                             true,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"}`:                       true,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                     true,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`:           true,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                       true,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such thing"}}`: true,
	} {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		req := &http.Request{Header: http.Header{}}
		AllowReplay(req, m)
		if _, got := req.Header["Idempotency-Key"]; got != want {
			t.Errorf("%s may be sent again: %v", text, got)
		}
	}
}

// Node.js and uvicorn close a connection that was idle for five seconds: ours
// must be gone by then, or a call is lost with it.
func TestIdleConnectionsGoInTime(t *testing.T) {
	if d := NewTransport(TransportOptions{}).IdleConnTimeout; d <= 0 || d >= 5e9 {
		t.Errorf("an idle connection is kept for %v", d)
	}
}
