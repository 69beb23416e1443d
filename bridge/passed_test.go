package bridge_test

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// oneRequest is a client that sends one request, and keeps that until it was passed.
type oneRequest struct {
	bridge.Conn // nil: there is no answer
	m           jsonrpc.Message
}

func (c *oneRequest) Receive(ctx context.Context, sink bridge.Sink) error {
	if c.m.Kind() != jsonrpc.Invalid {
		if err := sink.Send(ctx, c.m); err != nil {
			return err
		}
	}
	return io.EOF
}

// reading is a server that takes what it is sent, and ends when look has returned.
type reading struct{ look func() }

func (r reading) Send(context.Context, jsonrpc.Message) error { return nil }
func (r reading) TrySend(jsonrpc.Message) bool                { return true }
func (r reading) Close(error) error                           { return nil }

func (r reading) Receive(ctx context.Context, _ bridge.Sink) error {
	r.look()
	<-ctx.Done()
	return ctx.Err()
}

// While a request is open nobody keeps its bytes that the server has taken, also not what
// looks at a Conn, and whether or not that has changed them.
func TestExchangeKeepsNoBytes(t *testing.T) {
	for name, change := range map[string]func(jsonrpc.Message) jsonrpc.Message{
		"as it came": func(m jsonrpc.Message) jsonrpc.Message { return m },
		"changed":    func(m jsonrpc.Message) jsonrpc.Message { return m.WithParams(append([]byte(nil), m.Params()...)) },
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + strings.Repeat("x", 100<<10) + `"}}`
			client := &oneRequest{m: parse(t, text)}
			var came, went weak.Pointer[byte]
			shown := 0
			looked := bridge.Intercept(client, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
				shown++
				came = weak.Make(&m.Bytes()[0])
				*m = change(*m)
				went = weak.Make(&m.Bytes()[0])
				return nil
			}})
			if _, err := bridge.First(t.Context(), looked); err != nil {
				t.Fatal(err)
			}
			ctx, gone := context.WithCancel(t.Context())
			ctx = bridge.WithPassed(ctx, func(int) { client.m = jsonrpc.Message{} })
			err := bridge.Exchange(ctx, looked, reading{func() {
				defer gone()
				for range 100 {
					runtime.GC()
					if came.Value() == nil && went.Value() == nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
				t.Errorf("kept: what came %t, what went on %t", came.Value() != nil, went.Value() != nil)
			}}, bridge.PumpOptions{})
			if err != nil || shown != 1 {
				t.Errorf("%v; the request was shown %d times", err, shown)
			}
		})
	}
}

// sending is a peer that sends one message, with TrySend or Send, and calls look when that was taken.
type sending struct {
	text  string
	tries bool
	look  func(sent weak.Pointer[byte])
	bridge.Conn
}

func (s sending) Receive(ctx context.Context, sink bridge.Sink) error {
	s.look(s.send(ctx, sink))
	return io.EOF
}

func (s sending) send(ctx context.Context, sink bridge.Sink) weak.Pointer[byte] {
	m := bridgetest.Parse(s.text)
	if !s.tries || !sink.TrySend(m) {
		_ = sink.Send(ctx, m)
	}
	return weak.Make(&m.Bytes()[0])
}

// What looks at a Conn keeps nothing of a message that was taken.
func TestInterceptKeepsNothing(t *testing.T) {
	for _, tries := range []bool{false, true} {
		peer := sending{text: `{"jsonrpc":"2.0","method":"quick","params":{"x":"` + strings.Repeat("x", 1000) + `"}}`, tries: tries, look: func(sent weak.Pointer[byte]) {
			if runtime.GC(); sent.Value() != nil {
				t.Errorf("kept; tries: %t", tries)
			}
		}}
		l := new(listening)
		err := bridge.Intercept(peer, bridge.Hooks{Receive: func(*jsonrpc.Message) *jsonrpc.Message { return nil }}).Receive(t.Context(), l)
		if err != io.EOF || len(l.got) != 1 {
			t.Errorf("%v; received %q", err, l.got)
		}
	}
}
