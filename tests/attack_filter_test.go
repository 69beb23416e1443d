package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// hidingCalls are calls of the tool "echo" that are written so that not every
// reader sees one.
var hidingCalls = map[string]string{
	"plain":                `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`,
	"escaped name":         `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"\u0065cho"}}`,
	"escaped key":          `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"\u006eame":"echo"}}`,
	"escaped method":       `{"jsonrpc":"2.0","id":4,"method":"tools\/call","params":{"name":"echo"}}`,
	"escaped method, hex":  `{"jsonrpc":"2.0","id":5,"method":"tools\u002fcall","params":{"name":"echo"}}`,
	"escaped method key":   `{"jsonrpc":"2.0","id":6,"\u006dethod":"tools/call","params":{"name":"echo"}}`,
	"escaped params key":   `{"jsonrpc":"2.0","id":7,"method":"tools/call","\u0070arams":{"name":"echo"}}`,
	"two names":            `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"seen","name":"echo"}}`,
	"two names, reversed":  `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","name":"seen"}}`,
	"two names, escaped":   `{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"seen","\u006eame":"echo"}}`,
	"two params":           `{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"seen"},"params":{"name":"echo"}}`,
	"two methods":          `{"jsonrpc":"2.0","id":12,"method":"ping","method":"tools/call","params":{"name":"echo"}}`,
	"two methods, escaped": `{"jsonrpc":"2.0","id":13,"method":"ping","metho\u0064":"tools/call","params":{"name":"echo"}}`,
	"Name":                 `{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":"seen","Name":"echo"}}`,
	"Name alone":           `{"jsonrpc":"2.0","id":15,"method":"tools/call","params":{"Name":"echo"}}`,
	"Params":               `{"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"name":"seen"},"Params":{"name":"echo"}}`,
	"Method":               `{"jsonrpc":"2.0","id":17,"method":"ping","Method":"tools/call","params":{"name":"echo"}}`,
	"a task":               `{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{"name":"echo","task":{"ttl":1000}}}`,
	"params of an array":   `{"jsonrpc":"2.0","id":19,"method":"tools/call","params":["echo"]}`,
	"a byte order mark":    "\ufeff" + `{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"echo"}}`,
	"a NUL behind":         `{"jsonrpc":"2.0","id":21,"method":"tools/call","params":{"name":"echo"}}` + "\x00",
	"two values":           `{"jsonrpc":"2.0","id":22,"method":"ping"}{"jsonrpc":"2.0","id":23,"method":"tools/call","params":{"name":"echo"}}`,
	"a batch":              `[{"jsonrpc":"2.0","id":24,"method":"tools/call","params":{"name":"echo"}}]`,
	"a notification":       `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`,
}

// neverCalled checks what all processes of a server have read: as Go reads it,
// which takes the last of two keys and any case, no message calls the tool "echo".
func neverCalled(t testing.TB, record string) {
	t.Helper()
	messages := 0
	for line := range strings.Lines(harness.ReadFile(t, record)) {
		var m struct {
			Method string
			Params json.RawMessage
		}
		var p struct{ Name string }
		if json.Unmarshal([]byte(line), &m) == nil {
			messages++
			_ = json.Unmarshal(m.Params, &p)
		}
		if m.Method == "tools/call" && p.Name == "echo" || strings.Contains(line, `"echo"`) && !strings.Contains(line, `"ping"`) {
			t.Errorf("the server has read %.300s", line)
		}
	}
	if messages == 0 {
		t.Error("the server has read nothing: this proves nothing")
	}
}

// answerTo reads what the client hears until the answer to one request.
func answerTo(t testing.TB, c talker, id, request string) string {
	t.Helper()
	ctx := within(t, harness.Patience)
	if _, isHTTP := c.(*httpTalker); isHTTP {
		return mustAnswer(t, c, request)
	}
	bridgetest.Must(t, c.notify(ctx, request))
	for {
		var text string
		switch c := c.(type) {
		case *wsTalker:
			_, data, err := c.conn.Read(ctx)
			bridgetest.Must(t, err)
			text = string(data)
		case *sseTalker:
			text = c.in.message(t).data
		}
		if strings.Contains(text, `"id":`+id+`,`) {
			return text
		}
	}
}

// TestHiddenToolIsNeverCalled: a hidden tool is on no list and is not called,
// however the call is written, over every transport, own process or shared.
func TestHiddenToolIsNeverCalled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern"} {
		for _, isolation := range []string{"auto", "principal", "shared"} {
			for _, over := range transports {
				t.Run(kind+", "+isolation+", "+over, func(t *testing.T) {
					t.Parallel()
					record := filepath.Join(t.TempDir(), "stdin")
					s := serve(t, []string{"--ignore-tool", "echo", "--isolation", isolation}, "-speak", kind, "-record", record).site()
					for _, version := range []string{"2025-03-26", "2025-06-18"} {
						c, err := s.openAs(within(t, harness.Patience), over, version)
						bridgetest.Must(t, err)
						t.Cleanup(c.close)
						for what, call := range hidingCalls {
							if err := c.notify(within(t, harness.Patience), call); err != nil {
								if _, isRefusal := err.(*refusal); !isRefusal {
									t.Fatalf("%s: %v", what, err)
								}
							}
						}
						if answer := answerTo(t, c, "99", `{"jsonrpc":"2.0","id":99,"method":"tools/list"}`); strings.Contains(answer, `"echo"`) || !strings.Contains(answer, `"seen"`) {
							t.Errorf("the list: %.500s", answer)
						}
						neverCalled(t, record)
					}
				})
			}
		}
	}
}

// TestHiddenToolOfModernClients: the same for the revision without sessions,
// where a header names the tool as well.
func TestHiddenToolOfModernClients(t *testing.T) {
	t.Parallel()
	meta := fmt.Sprintf(`"_meta":{%q:%q,%q:{}}`, metaVersion, modernVersion, metaCaps)
	for _, kind := range []string{"legacy", "modern"} {
		for _, isolation := range []string{"auto", "shared", "request"} {
			t.Run(kind+", "+isolation, func(t *testing.T) {
				t.Parallel()
				record := filepath.Join(t.TempDir(), "stdin")
				s := serve(t, []string{"--ignore-tool", "echo", "--isolation", isolation}, "-speak", kind, "-record", record).site()
				for what, call := range hidingCalls {
					for _, params := range []string{`{"name":"echo"`, `{"\u006eame":"echo"`, `{"name":"\u0065cho"`} {
						call = strings.Replace(call, params+"}", params+","+meta+"}", 1)
					}
					for _, name := range []string{"echo", "seen", "=?base64?ZWNobw==?=", ""} {
						h := http.Header{"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {name}}
						if resp := s.ask(t, http.MethodPost, "/mcp", call, h); strings.Contains(resp.body, `"result"`) && strings.Contains(resp.body, "echo") {
							t.Errorf("%s, named %q: %v", what, name, resp)
						}
					}
				}
				c := &modernTalker{s}
				if answer := mustAnswer(t, c, `{"jsonrpc":"2.0","id":99,"method":"tools/list","params":{`+meta+`}}`); strings.Contains(answer, `"echo"`) || !strings.Contains(answer, `"seen"`) {
					t.Errorf("the list: %.500s", answer)
				}
				neverCalled(t, record)
			})
		}
	}
}
