package replay

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A client hears from the recording what it has heard from the server.
func TestFakeSame(t *testing.T) {
	for name, says := range map[string]string{"legacy": legacy, "modern": strings.ReplaceAll(modern, "META", meta)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &tape{}
				want := converse(t, w.observed(server()), says)
				f := NewFake(w.recording(t))
				if got := converse(t, f, says); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				if u := f.Usage(); u.Asked != u.Requests || u.MissCount > 0 || u.Requests < 5 {
					t.Errorf("%+v", u)
				}
				// A client with other ids and tokens finds no difference either.
				if r := played(t, f, w.recording(t), PlayOptions{}); len(r.Differences) > 0 {
					t.Error(text(t, r))
				}
			})
		})
	}
}

// Equal calls are answered in the order of the recording, the last one again and again; each
// client begins anew. A miss names what is nearest. What nobody has asked is told.
func TestFakeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			n := 0
			return client.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
				n++
				return client.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"n":`+itoa(n)+`}`)))
			}))
		})
		f := NewFake(recorded(t, counts, `
{"jsonrpc":"2.0","id":1,"method":"x/y","params":{"a":1,"b":[1.0]}}
{"jsonrpc":"2.0","id":2,"method":"x/y","params":{"b":[1],"a":1e0,"_meta":{"traceparent":"1"}}}
{"jsonrpc":"2.0","id":3,"method":"x/y","params":{"a":2,"b":[1]}}
{"jsonrpc":"2.0","id":4,"method":"x/z"}
`))
		for range 2 {
			got := converse(t, f, `
{"jsonrpc":"2.0","id":"q","method":"x/y","params":{"a":1,"b":[1],"_meta":{"progressToken":9}}}
{"jsonrpc":"2.0","id":11,"method":"x/y","params":{"a":1,"b":[1]}}
{"jsonrpc":"2.0","id":12,"method":"x/y","params":{"a":1,"b":[1]}}
{"jsonrpc":"2.0","id":13,"method":"x/y","params":{"a":2,"b":[2]}}
{"jsonrpc":"2.0","id":14,"method":"x/q"}
{"jsonrpc":"2.0","id":15,"method":"ping"}
`)
			want := `{"jsonrpc":"2.0","id":"q","result":{"n":1}}
{"jsonrpc":"2.0","id":11,"result":{"n":2}}
{"jsonrpc":"2.0","id":12,"result":{"n":2}}
{"jsonrpc":"2.0","id":13,"error":{"code":-32602,"message":"the recording has no such x/y; the nearest one is in line 5, with params.b[0]: 1 and not 2"}}
{"jsonrpc":"2.0","id":14,"error":{"code":-32601,"message":"the recording has no x/q; it has x/y, x/z"}}
{"jsonrpc":"2.0","id":15,"result":{}}
`
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
		u := f.Usage()
		if u.Requests != 4 || u.Asked != 2 || u.MissCount != 4 || strings.Join(u.Unasked, "|") != "line 5: x/y|line 7: x/z" {
			t.Errorf("%+v", u)
		}
	})
}

// What the server says after a call was cancelled belongs to what came last.
func TestFakeCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tells := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			return client.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
				if m.Method() != "notifications/a" {
					return nil
				}
				return client.Send(ctx, jsonrpc.NewNotification("notifications/b", nil))
			}))
		})
		f := NewFake(recorded(t, tells, `
{"jsonrpc":"2.0","id":1,"method":"x/y"}
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}
{"jsonrpc":"2.0","method":"notifications/a"}
`))
		if got := converse(t, f, `{"jsonrpc":"2.0","method":"notifications/a"}`); !strings.Contains(got, "notifications/b") {
			t.Errorf("got %q", got)
		}
	})
}

// One recorded initialize serves every legacy revision.
func TestFakeRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(recorded(t, server(), legacy))
		for _, v := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
			got := converse(t, f, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+v+`","capabilities":{},"clientInfo":{"name":"other","version":"2"}}}`)
			if !strings.Contains(got, `"protocolVersion":"`+v+`"`) {
				t.Error(got)
			}
		}
	})
}

// A modern recording in which nobody has asked who the server is serves clients that do.
func TestFakeDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), strings.ReplaceAll(`
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"},"_meta":{META}}}
`, "META", meta))
		got := converse(t, NewFake(rec), strings.ReplaceAll(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}`, "META", meta))
		for _, want := range []string{`"supportedVersions":["2026-07-28"]`, `"tools":{`, `"name":"mcp-bridge-demo"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s is not in %s", want, got)
			}
		}
	})
}
