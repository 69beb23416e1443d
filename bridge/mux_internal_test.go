package bridge

import "testing"

// Which log messages a call asks for is found however its key is spelled.
func TestLogLevel(t *testing.T) {
	for meta, want := range map[string]string{
		``:                       ``,
		`{"progressToken":1}`:    ``,
		`{"x/logLevel":"error"}`: ``,
		`{"progressToken":1,"io.modelcontextprotocol/logLevel":"info"}`:     `"info"`,
		`{"io.modelcontextprotocol\/logL\u0065vel":"info","logLevel":"no"}`: `"info"`,
		`{"io.modelcontextprotocol\/\u006cogLevel":"debug"}`:                `"debug"`,
	} {
		if got := logLevel([]byte(meta)); string(got) != want {
			t.Errorf("%s: %s, want %s", meta, got, want)
		}
	}
}
