package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// Foreign words in the log (a server's stderr, ids, methods, tools, URLs) have no character in them that acts
// on a terminal or turns the text around, in either format; in JSON they mean what they meant.
func TestLogEscapes(t *testing.T) {
	t.Parallel()
	const acting = "\u007f\u0085\u009b31m\u009f\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			p := serve(t, []string{"--log-format", format, "--log-level", "trace", "--ignore-tool", "hidden"})
			s := p.site()
			for _, transport := range transports {
				c := s.mustOpen(t, transport)
				mustAnswer(t, c, `{"jsonrpc":"2.0","id":"`+acting+`","method":"m`+acting+`","params":{"_meta":{"progressToken":"`+acting+`"}}}`)
				mustAnswer(t, c, `{"jsonrpc":"2.0","id":"`+acting+`","method":"tools/call","params":{"name":"`+acting+`"}}`)
				mustAnswer(t, c, emit("1", `{"jsonrpc":"2.0","id":"other`+acting+`","result":{}}`, `{"jsonrpc":"2.0","method":"n`+acting+`"}`,
					"noise "+acting, `{"jsonrpc":"2.0","id":$ID,"result":{}}`))
				if err := c.notify(t.Context(), `{"jsonrpc":"2.0","id":"none`+acting+`","result":{}}`); err != nil {
					t.Error(err)
				}
				mustAnswer(t, c, `{"jsonrpc":"2.0","id":2,"method":"exit","params":{"code":3,"lines":["last words `+acting+`"]}}`)
			}
			s.ask(t, "GET", "/nothing", "", map[string][]string{"Origin": {"http://" + acting[1:]}})
			u := connect(t, "http://127.0.0.1:1/"+acting[1:], "--log-format", format, "--log-level", "trace")
			u.send(initialize("2025-06-18"))
			u.line()
			u.Stdin.Close()
			u.wait()
			harness.WaitUntil(t, "the last words to be logged", func() bool { return strings.Count(p.Log(), "last words") >= len(transports) })
			p.stop()
			if i := strings.IndexAny(p.Log()+u.Log(), acting[:len("\u007f\u0085\u009b")]+acting[len("\u007f\u0085\u009b31m"):]); i >= 0 {
				t.Errorf("the log has a character that acts, at %+q", (p.Log() + u.Log())[max(0, i-100):i+4])
			}
			if format == "text" {
				return
			}
			found := false
			for line := range strings.Lines(p.Log()) {
				var entry struct{ Line string }
				if err := json.Unmarshal([]byte(line), &entry); err != nil {
					t.Errorf("no JSON: %q", line)
				}
				found = found || strings.Contains(entry.Line, "last words "+acting)
			}
			if !found {
				t.Error("what the server has said is not in the log as it was")
			}
		})
	}
}
