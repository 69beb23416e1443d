package replay

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/demo"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

// tape is an observe.Watcher that writes a trace of the messages.
type tape struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (w *tape) Event(observe.Event) {}

func (w *tape) Message(p *observe.Passed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := map[jsonrpc.Kind]trace.Kind{jsonrpc.Request: trace.Request, jsonrpc.Response: trace.Response, jsonrpc.Notification: trace.Notification}
	w.out.Write(trace.Append(nil, &trace.Record{
		Seq: p.Seq, Time: p.At(), Kind: kinds[p.Message.Kind()], Server: p.Session.Server, Session: p.Session.Name,
		Hop: p.Hop.String(), Dir: p.Dir.String(), Era: p.Session.Era(), Transport: p.Session.Transport, Body: trace.Body{Text: p.Message.Bytes()},
	}))
}

// observed returns h so that what is said with its clients is written down.
func (w *tape) observed(h bridge.Handler) bridge.Handler {
	var o observe.Observer
	o.Watch(w)
	return o.Serve("demo", "stdio", h)
}

func (w *tape) recording(t *testing.T) *Recording {
	t.Helper()
	rec, err := Load(bytes.NewReader(w.out.Bytes()), LoadOptions{})
	if err != nil || len(rec.Faults) > 0 {
		t.Fatalf("%v %v\n%s", err, rec, w.out.Bytes())
	}
	return rec
}

// recorded returns the recording of a server with a client that says these lines.
func recorded(t *testing.T, h bridge.Handler, says string) *Recording {
	t.Helper()
	w := &tape{}
	converse(t, w.observed(h), says)
	return w.recording(t)
}

// converse is a client in a synctest bubble: it says one line of says after the other,
// and has answers to what a server may ask. It returns what it has heard. In its lines $1 is
// the last cursor or state that the server has given.
func converse(t *testing.T, h bridge.Handler, says string) string {
	t.Helper()
	c := &talker{}
	with(t, h, func(conn bridge.Conn) {
		c.conn = conn
		var wg sync.WaitGroup
		wg.Go(func() { _ = conn.Receive(t.Context(), c) })
		for line := range strings.Lines(says) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if pause, err := time.ParseDuration(line); err == nil {
				time.Sleep(pause)
				synctest.Wait()
				continue
			}
			bridgetest.Must(t, conn.Send(t.Context(), bridgetest.Parse(strings.ReplaceAll(line, "$1", c.given))))
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		_ = conn.Close(nil)
		wg.Wait()
	})
	return c.heard.String()
}

// with gives use a Conn to h, in a bubble.
func with(t *testing.T, h bridge.Handler, use func(conn bridge.Conn)) {
	t.Helper()
	a, b := bridge.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = h.ServeConn(ctx, b)
		_ = b.Close(nil)
	})
	use(a)
	_ = a.Close(nil)
	cancel()
	wg.Wait()
}

type talker struct {
	conn  bridge.Conn
	given string
	heard strings.Builder
}

func (c *talker) TrySend(jsonrpc.Message) bool { return false }

func (c *talker) Send(ctx context.Context, m jsonrpc.Message) error {
	fmt.Fprintf(&c.heard, "%s\n", m.Bytes())
	for _, o := range opaqueFields {
		if text, ok := jsonrpc.Text(m.Lookup("result", o.resultPath[0])); ok {
			c.given = text
		}
	}
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	answer := map[string]string{
		"elicitation/create":     `{"action":"accept","content":{"name":"Ada","age":36}}`,
		"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"hello"}}`,
		"roots/list":             `{"roots":[{"uri":"file:///a"}]}`,
	}[m.Method()]
	return c.conn.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(answer)))
}

// legacy is a conversation with the demo server that has all there is: pages, progress, log
// lines, requests of the server, subscriptions, a cancelled call, errors.
const legacy = `
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"ping","method":"ping"}
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"$1"}}
{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":1,"steps":3},"_meta":{"progressToken":"p"}}}
2s
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"log","arguments":{"level":"warning","message":"take care"}}}
{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"elicit","arguments":{"message":"Who are you?"}}}
{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"sample","arguments":{"prompt":"Say hello."}}}
{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"roots","arguments":{}}}
{"jsonrpc":"2.0","id":8,"method":"resources/subscribe","params":{"uri":"demo://item/1"}}
{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"notify","arguments":{"kind":"resource","uri":"demo://item/1"}}}
{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":9,"steps":3},"_meta":{"progressToken":7}}}
4s
{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}
{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"name":"fail","arguments":{}}}
{"jsonrpc":"2.0","id":12,"method":"no/such","params":{"a":[1,2]}}
{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":{"message":"hello"}}}
`

// server is the demo server.
func server() *demo.Server { return &demo.Server{Version: "1"} }

// changed is a server whose messages change says anew.
func changed(change func(text string) string) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		return server().ServeConn(ctx, bridge.Intercept(client, bridge.Hooks{
			Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
				if text := change(string(m.Bytes())); text != "" {
					return bridgetest.Parse(text), reply, nil
				}
				return out, reply, nil
			},
		}))
	})
}

// played returns the report of a recording that is played to a server.
func played(t *testing.T, h bridge.Handler, rec *Recording, o PlayOptions) (report *Report) {
	t.Helper()
	with(t, h, func(conn bridge.Conn) {
		var err error
		report, err = Play(t.Context(), conn, rec, o)
		bridgetest.Must(t, err)
	})
	return report
}
