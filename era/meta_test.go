package era

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ED6, C.6: initialize asks no server for what it cannot be answered with.
func TestLegacyInitialize(t *testing.T) {
	for version, want := range map[string]string{
		`"2024-11-05"`:  "", // as it is
		`"2025-11-25"`:  "",
		`"2026-07-28"`:  "2025-11-25",
		`"2099-01-01"`:  "2025-11-25", // nobody knows it yet
		`"2025-11-26"`:  "2025-11-25",
		`"2025-07-01"`:  "", // there was none, but it is not for us to say
		`"2099-1-1"`:    "",
		`"2099-01x01"`:  "",
		`"20990-1-01"`:  "",
		`"2099-01-011"`: "",
		`"v9"`:          "",
		`"draft"`:       "",
		`"DRAFT-9999"`:  "",
		`""`:            "",
		`20990101`:      "",
		`null`:          "",
	} {
		in := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":` + version + `,"capabilities":{}}}`
		m, err := jsonrpc.Parse([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = in
		} else {
			want = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + want + `","capabilities":{}}}`
		}
		if got := string(new(LegacyInitialize(m)).Bytes()); got != want {
			t.Errorf("%s becomes\n%s, want\n%s", version, got, want)
		}
	}
}

// The _meta that the bridge writes says what it was told to say, and nothing else.
func TestMetaObject(t *testing.T) {
	for want, meta := range map[string]Meta{
		`{}`: {},
		`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`: {
			Version: []byte(`"2026-07-28"`), Capabilities: []byte(`{}`),
		},
		`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"n"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/logLevel":"info"}`: {
			Version: []byte(`"2026-07-28"`), ClientInfo: []byte(`{"name":"n"}`), Capabilities: []byte(`{"roots":{}}`), LogLevel: []byte(`"info"`),
		},
	} {
		if got := string(meta.Object()); got != want {
			t.Errorf("the _meta is\n%s, want\n%s", got, want)
		}
	}
}
