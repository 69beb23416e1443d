package era_test

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Of a subscription no more is kept than it takes to open it again, and that is
// bounded; a short one stays as it is.
func TestKeptListen(t *testing.T) {
	const kept = `"_meta":{"a":1},"notifications":{"toolsListChanged":true}`
	for _, tt := range []struct {
		name, params, want string // want: params, "" for a refusal
	}{
		{"short", `{"x":1,` + kept + `}`, `{"x":1,` + kept + `}`},
		{"junk", `{"x":"` + strings.Repeat("x", 1<<20) + `",` + kept + `}`, `{` + kept + `}`},
		{"URIs", `{"notifications":{"resourceSubscriptions":["` + strings.Repeat("x", era.MaxListen) + `"]}}`, ""},
		{"meta", `{"_meta":{"x":"` + strings.Repeat("x", era.MaxListen) + `"},"notifications":{}}`, ""},
	} {
		m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"7","method":"subscriptions/listen","params":` + tt.params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		got, no := era.KeptListen(m)
		switch {
		case tt.want == "" && (no == nil || no.Code != jsonrpc.CodeInvalidParams):
			t.Errorf("%s: not refused: %v", tt.name, no)
		case tt.want != "" && (no != nil || string(got.Params()) != tt.want || got.ID() != m.ID() || got.Method() != m.Method()):
			t.Errorf("%s: %.300s, %v", tt.name, got.Bytes(), no)
		}
	}
}
