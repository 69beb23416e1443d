package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// text is a report as it is printed.
func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	bridgetest.Must(t, r.Write(&b))
	return b.String()
}

// The server that was recorded answers as it did.
func TestPlaySame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		r := played(t, server(), rec, PlayOptions{})
		if len(r.Differences)+len(r.Unanswered) > 0 || r.Sent < 20 || r.Compared < 20 {
			t.Errorf("%+v\n%s", r, text(t, r))
		}
	})
}

// So does one that spells everything otherwise: the order of members, numbers, white space,
// and makes other cursors.
func TestPlaySpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		turned := changed(func(text string) string {
			m := bridgetest.Parse(text)
			if m.Method() == "notifications/progress" {
				return strings.Replace(text, `"progress":1`, `"progress":0.1e1`, 1)
			}
			if rest, ok := strings.CutPrefix(text, `{"jsonrpc":"2.0",`); ok && m.Kind() == jsonrpc.Response {
				return "{" + strings.TrimSuffix(rest, "}") + ` , "jsonrpc":"2.0"}`
			}
			return text
		})
		if r := played(t, turned, rec, PlayOptions{}); len(r.Differences) > 0 {
			t.Error(text(t, r))
		}
	})
}

// How much a server still says about a call that is being cancelled is chance: neither more than in the recording nor less of
// it is a difference.
func TestPlayCancelled(t *testing.T) {
	const (
		call       = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":10,"steps":10},"_meta":{"progressToken":"t"}}}`
		progress   = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":%d,"total":10}}`
		cancelled  = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`
		initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	)
	t.Run("more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			slower := changed(func(text string) string {
				if strings.Contains(text, `"progress":5`) {
					return ""
				}
				return text
			})
			rec := recorded(t, slower, initialize+"\n"+call+"\n5.5s\n"+cancelled)
			if r := played(t, server(), rec, PlayOptions{KeepPauses: true}); len(r.Differences) > 0 || r.Compared != 5 {
				t.Error(text(t, r))
			}
		})
	})
	t.Run("less", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := &tape{}
			converse(t, w.observed(server()), initialize+"\n"+call+"\n1.5s\n"+cancelled)
			session := w.recording(t).Session
			for n, late := range []string{fmt.Sprintf(progress, 2), `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`} {
				w.out.Write(trace.Append(nil, &trace.Record{Seq: uint64(100 + n), Time: time.Now(), Kind: trace.Notification, Server: "demo", Session: session,
					Hop: trace.Downstream, Dir: trace.ToClient, Body: trace.Body{Text: []byte(late)}}))
			}
			rec := w.recording(t)
			began := time.Now()
			r := played(t, server(), rec, PlayOptions{})
			if len(r.Differences) > 0 || r.Sent != 3 || r.Compared != 2 {
				t.Error(text(t, r))
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("what need not come was awaited: %v", took)
			}
		})
	})
}

// What a changed server says otherwise is told, and nothing else.
func TestPlayChanged(t *testing.T) {
	for _, c := range []struct {
		name, old, new string // of each message of the server
		drop           bool   // those with old
		ignore         []string
		want           string
	}{
		{name: "an answer", old: `"text":"hello"`, new: `"text":"bye\u001b[31m"`,
			want: "tools/call echo\n  result.content[0].text: \"hello\" became \"bye\\u001b[31m\"\nline N: tools/call echo\n  result.content[0].text: \"hello\" became \"bye\\u001b[31m\"\n"},
		{name: "a new member", old: `"content":[{"type":"text","text":"hello"`, new: `"x":{"y":1},"content":[{"type":"text","text":"hello"`,
			ignore: []string{"tools/call:result.x.z", "tools/list:result.x"},
			want:   "tools/call echo\n  result.x is new: {\"y\":1}\nline N: tools/call echo\n  result.x is new: {\"y\":1}\n"},
		{name: "an ignored path", old: `"text":"hello"`, new: `"text":"bye"`, ignore: []string{"tools/call:result.content[*].text"}},
		{name: "an ignored path of any method", old: `"text":"hello"`, new: `"text":"bye"`, ignore: []string{"result.content"}},
		{name: "a log line", old: "take care", new: "beware", want: "notifications/message\n  params.data: \"take care\" became \"beware\"\n"},
		{name: "an ignored method", old: "take care", new: "beware", ignore: []string{"notifications/message"}},
		{name: "a lost log line", old: "take care", drop: true, want: "notifications/message has not come\n"},
		{name: "a question", old: "Who are you?", new: "Who is it?", want: "elicitation/create\n  params.message: \"Who are you?\" became \"Who is it?\"\n"},
		{name: "lost progress", old: `"progress":2`, drop: true,
			want: "notifications/progress has not come\n"},
		{name: "an error", old: `"code":-32601`, new: `"code":-1`, want: "no/such\n  error.code: -32601 became -1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := recorded(t, server(), legacy)
				other := changed(func(text string) string {
					if c.drop && strings.Contains(text, c.old) {
						return ""
					}
					return strings.ReplaceAll(text, c.old, c.new)
				})
				ignore, err := Ignore(c.ignore)
				bridgetest.Must(t, err)
				r := played(t, other, rec, PlayOptions{Ignore: ignore})
				have := text(t, r)
				have = have[:strings.LastIndex(strings.TrimSpace(have), "\n")+1] // without the sum
				for _, d := range r.Differences {
					have = strings.ReplaceAll(have, "line "+itoa(d.Line)+":", "line N:")
				}
				if want := c.want; want != "" && !strings.HasPrefix(have, "line N: "+want) || want == "" && have != "" {
					t.Errorf("have\n%swant\n%s", have, want)
				}
			})
		})
	}
}

// A server that asks what it has not asked in the recording is told so, and goes on.
func TestPlayUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		asks := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			return server().ServeConn(ctx, bridge.Intercept(client, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
				if m.Method() == "notifications/initialized" {
					more := bridgetest.Parse(`{"jsonrpc":"2.0","id":"more","method":"roots/list"}`)
					return &more
				}
				return nil
			}}))
		})
		r := played(t, asks, rec, PlayOptions{})
		if len(r.Unanswered) != 1 || r.Unanswered[0].Message != "roots/list" {
			t.Error(text(t, r))
		}
	})
}

// The client's answers go under the ids that the server has given its requests now.
func TestPlayAnswerIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		other := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			return server().ServeConn(ctx, bridge.Intercept(client, bridge.Hooks{
				Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
					if m.Kind() == jsonrpc.Request {
						m = m.WithID(jsonrpc.StringID("q" + m.ID().String()))
					}
					return m, reply, nil
				},
				Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
					switch {
					case m.Kind() != jsonrpc.Response:
					case strings.HasPrefix(m.ID().String(), `"q`):
						id, _ := jsonrpc.ParseID([]byte(strings.Trim(m.ID().String(), `"q`)))
						*m = m.WithID(id)
					default:
						*m = jsonrpc.Message{}
					}
					return nil
				},
			}))
		})
		if r := played(t, other, rec, PlayOptions{}); len(r.Differences) > 0 {
			t.Error(text(t, r))
		}
	})
}

// A server that says nothing any more is waited for, but not for ever; one that ends is not
// waited for.
func TestPlayBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		began := time.Now()
		silent := changed(func(text string) string {
			if strings.Contains(text, "serverInfo") {
				return text
			}
			return ""
		})
		r := played(t, silent, rec, PlayOptions{Wait: time.Second})
		if took := time.Since(began); took > 40*time.Second || len(r.Differences) < 10 {
			t.Errorf("%v\n%s", took, text(t, r))
		}
		ends := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			n := 0
			_ = client.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
				if n++; n > 1 {
					return io.EOF
				}
				return client.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
			}))
			return nil
		})
		began = time.Now()
		r = played(t, ends, rec, PlayOptions{})
		if took := time.Since(began); took > time.Second || !strings.Contains(text(t, r), "the server has ended") {
			t.Errorf("%v\n%s", took, text(t, r))
		}
	})
}

// A server that answers nothing but errors is no server.
func TestPlayUnusable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), legacy)
		refuses := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
			return client.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
				if m.Kind() != jsonrpc.Request {
					return nil
				}
				return client.Send(ctx, jsonrpc.NewError(m.ID(), -32603, "out of \x1b order", nil))
			}))
		})
		with(t, refuses, func(conn bridge.Conn) {
			_, err := Play(t.Context(), conn, rec, PlayOptions{Wait: time.Second})
			if !errors.Is(err, ErrNoServer) || !strings.Contains(err.Error(), `out of \u001b order`) {
				t.Error(err)
			}
		})
	})
}

// With KeepPauses the pauses stay.
func TestPlayTiming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), `
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
1h
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
`)
		for timing, want := range map[bool]time.Duration{false: 0, true: time.Hour} {
			began := time.Now()
			played(t, server(), rec, PlayOptions{KeepPauses: timing})
			if took := time.Since(began).Truncate(time.Minute); took != want {
				t.Error(timing, took)
			}
		}
	})
}

// In 2026-07-28 the state that a server gives comes back to it, and is no difference.
const modern = `
{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{META}}}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"elicit","arguments":{"message":"Who are you?"},"_meta":{META}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"elicit","arguments":{"message":"Who are you?"},"inputResponses":{"form":{"action":"accept","content":{"name":"Ada"}}},"requestState":"$1","_meta":{META}}}
{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["demo://item/1"]},"_meta":{META}}}
{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"notify","arguments":{"kind":"resource","uri":"demo://item/1"},"_meta":{META}}}
{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":1,"steps":2},"_meta":{"progressToken":1,META}}}
2s
`

const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}`

func TestPlayModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := recorded(t, server(), strings.ReplaceAll(modern, "META", meta))
		if rec.Era != "modern" {
			t.Error(rec.Era)
		}
		r := played(t, server(), rec, PlayOptions{})
		if len(r.Differences) > 0 || r.Compared < 8 {
			t.Error(text(t, r))
		}
	})
}

// A tool that is not there any more.
func TestPlayTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := &demo.Server{Version: "1", PageSize: 100}
		rec := recorded(t, more, `
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
`)
		r := played(t, server(), rec, PlayOptions{})
		want := []string{"result.nextCursor is new", "result.tools[8] is gone"}
		if len(r.Differences) != 1 || !slices.EqualFunc(r.Differences[0].Changes[:2], want, strings.HasPrefix) {
			t.Error(text(t, r))
		}
	})
}

func TestChanges(t *testing.T) {
	for _, c := range []struct{ was, is, want string }{
		{`[1,2,3]`, `[1,3]`, "x[1] is gone: 2"},
		{`[1,3]`, `[0,1,3]`, "x[0] is new: 0"},
		{`[1,2,3]`, `[1,3,2]`, "x[1]: 2 became 3|x[2]: 3 became 2"},
		{`[]`, `{}`, "x: [] became {}"},
		{`{"a b":1,"[0]":null}`, `{"a b":1.0,"[0]":false}`, `x["\"[0]\""]: null became false`},
		{`"<b>"`, `"\u009b"`, `x: "<b>" became "\u009b"`},
		{`[[],[1]]`, `[[1],[1],[]]`, "x[0][0] is new: 1|x[2] is new: []"},
	} {
		var have []string
		findChanges(&path{parent: &path{}, key: "x"}, decode([]byte(c.was)), decode([]byte(c.is)), func(d change) bool {
			have = append(have, d.String())
			return true
		})
		if c.want != strings.Join(have, "|") {
			t.Errorf("%s, %s: %q", c.was, c.is, have)
		}
	}
}

func TestIgnoreSyntax(t *testing.T) {
	for text, want := range map[string]string{
		"": "write a path", "a..b": "a name is missing", "a[": "not closed", `a["x`: "closing quote", "a.": "a name is missing",
		`result["a b"].c`: "", "tools/call:result": "", "notifications/progress": "", "initialize:result.serverInfo.version": "",
	} {
		_, err := Ignore([]string{text})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
