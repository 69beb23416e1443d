package bridge

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Which log messages a call asks for is found however its key is spelled.
func TestLogLevel(t *testing.T) {
	for meta, want := range map[string]string{
		`{}`:                     ``,
		`{"progressToken":1}`:    ``,
		`{"x/logLevel":"error"}`: ``,
		`{"progressToken":1,"io.modelcontextprotocol/logLevel":"info"}`:     `"info"`,
		`{"io.modelcontextprotocol\/logL\u0065vel":"info","logLevel":"no"}`: `"info"`,
		`{"io.modelcontextprotocol\/\u006cogLevel":"debug"}`:                `"debug"`,
	} {
		m := jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", []byte(`{"_meta":`+meta+`}`))
		if got := logLevel(m); string(got) != want {
			t.Errorf("%s: %s, want %s", meta, got, want)
		}
	}
}
