package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestOddShapes: J1, J4, J9. Messages that are large or odd in every direction
// that JSON has are answered, or refused with an error, on every transport; and
// each leaves the bridge as it was.
func TestOddShapes(t *testing.T) {
	t.Parallel()
	const wide = 400_000
	keys := func(format string) string {
		var b strings.Builder
		for i := range wide {
			fmt.Fprintf(&b, format+",", i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	shapes := map[string]string{
		"many keys":             `{"jsonrpc":"2.0","id":1,"method":"echo","params":{` + keys(`"k%d":1`) + `}}`,
		"many escaped keys":     `{"jsonrpc":"2.0","id":1,"method":"echo","params":{` + keys(`"\u006b%d":1`) + `}}`,
		"many keys of _meta":    `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"_meta":{` + keys(`"k%d":1`) + `}}}`,
		"many members":          `{"jsonrpc":"2.0","id":1,"method":"echo",` + keys(`"k%d":1`) + `}`,
		"much space":            `{"jsonrpc":"2.0","id":1,` + strings.Repeat(" \t", 2<<20) + `"method":"echo"}`,
		"a large number":        `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":1e999999999}}`,
		"a long number":         `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"n":` + strings.Repeat("9", 1<<20) + `}}`,
		"a large number as id":  `{"jsonrpc":"2.0","id":1e999999999,"method":"echo"}`,
		"a fraction as id":      `{"jsonrpc":"2.0","id":1.5,"method":"echo"}`,
		"no value":              ``,
		"a string":              `"echo"`,
		"half a surrogate":      `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"s":"\ud800"}}`,
		"broken UTF-8":          `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"s":"` + "\xff\xfe" + `"}}`,
		"a control code":        `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"s":"` + "\x01" + `"}}`,
		"an empty batch":        `[]`,
		"a batch of a million":  `[` + strings.Repeat("1,", 1_000_000) + `1]`,
		"a batch in a batch":    `[[` + ping + `]]`,
		"a truncated message":   `{"jsonrpc":"2.0","id":1,"method":"ec`,
		"a message and a half":  ping + `{"jsonrpc"`,
		"result and error":      `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`,
		"an answer to nothing":  `{"jsonrpc":"2.0","id":"never asked","result":{}}`,
		"an error for null":     `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`,
		"an error for no id":    `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}`,
		"another version":       `{"jsonrpc":"1.0","id":1,"method":"echo"}`,
		"a method of no string": `{"jsonrpc":"2.0","id":1,"method":7}`,
	}
	s := serve(t, nil).site()
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			ctx := within(t, 2*harness.Patience)
			for what, shape := range shapes {
				c, err := s.openAs(ctx, over, "2025-03-26")
				if err != nil {
					t.Fatal(err)
				}
				if err := c.notify(ctx, shape); err != nil {
					no, isRefusal := err.(*refusal)
					if !isRefusal || no.status >= 500 {
						t.Errorf("%s: %v", what, err)
					}
				}
				c.close()
			}
			mustAnswer(t, s.mustOpen(t, over), ping)
		})
	}
}

// TestLongHeaders: headers have an end, and so has the patience with who sends them.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	srv := serve(t, nil)
	long := strings.Repeat("x", 60_000)
	if status, _ := srv.raw(t, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"+strings.Repeat("X: "+long+"\r\n", 30)+"\r\n"); status != "" && !strings.Contains(status, " 431 ") {
		t.Errorf("1.8 MB of headers: %s, want 431 or the end of the connection", status)
	}
	s := srv.site()
	for what, h := range map[string]http.Header{
		"Accept":                 {"Accept": {strings.Repeat("text/plain,", 5000)}},
		"Origin":                 {"Origin": {"http://" + long}},
		"Mcp-Session-Id":         {"Mcp-Session-Id": {long}},
		"Last-Event-ID":          {"Last-Event-Id": {long}},
		"Mcp-Protocol-Version":   {"Mcp-Protocol-Version": {long}},
		"Authorization":          {"Authorization": {"Bearer " + long}},
		"Sec-WebSocket-Protocol": {"Sec-Websocket-Protocol": {strings.Repeat("mcp,", 10_000)}},
	} {
		for path, method := range endpoints {
			if method == http.MethodGet && path == "/sse" {
				continue // a stream that is served has no end
			}
			if resp := s.ask(t, method, path+"?"+"", ping, h); resp.status >= 500 {
				t.Errorf("%s %s with a long %s: %v", method, path, what, resp)
			}
		}
	}
	mustAnswer(t, s.mustOpen(t, "mcp"), ping)
}
