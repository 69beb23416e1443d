package mux_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// echo answers each request of a Conn at once.
func echo(c bridge.PullConn, result []byte) {
	for {
		m, err := c.Recv(context.Background())
		if err != nil {
			return
		}
		if m.Kind() == jsonrpc.Request && c.Send(context.Background(), jsonrpc.NewResult(m.ID(), result)) != nil {
			return
		}
	}
}

// single is a client's Conn that is one request long.
type single struct {
	asked  jsonrpc.Message
	answer jsonrpc.Message
	done   bool
}

func (s *single) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if !s.done {
		s.done = true
		return s.asked, nil
	}
	<-ctx.Done()
	return jsonrpc.Message{}, ctx.Err()
}

func (s *single) Send(_ context.Context, m jsonrpc.Message) error {
	s.answer = m
	return nil
}

func (s *single) Close() error { return nil }

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// One call of 2026-07-28, 100 bytes each way: first the server alone, at the
// other end of a Pipe, then through Mux and Exchange. The difference is what
// these cost.
func BenchmarkModernCall(b *testing.B) {
	call, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + modernMeta +
		`,"name":"echo","arguments":{"text":"` + strings.Repeat("x", 100) + `"}}}`))
	if err != nil {
		b.Fatal(err)
	}
	result := []byte(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`)
	b.Run("pipe", func(b *testing.B) {
		ours, theirs := bridge.PullPipe()
		go echo(theirs, result)
		defer ours.Close()
		b.ReportAllocs()
		for b.Loop() {
			if err := ours.Send(b.Context(), call); err != nil {
				b.Fatal(err)
			}
			if _, err := ours.Recv(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mux", func(b *testing.B) {
		x := mux.New(mux.Options{Dialer: dialFunc(func(context.Context) (bridge.PullConn, error) {
			ours, theirs := bridge.PullPipe()
			go echo(theirs, result)
			return ours, nil
		})})
		defer x.Close()
		b.ReportAllocs()
		for b.Loop() {
			client := &single{asked: call}
			server, err := bridge.PullDialed(x.Dial(b.Context()))
			if err != nil {
				b.Fatal(err)
			}
			if err := bridge.Exchange(b.Context(), bridge.Push(client), bridge.Push(server), bridge.PumpOptions{}); err != nil {
				b.Fatal(err)
			}
			_ = server.Close()
			if client.answer.ID() != call.ID() {
				b.Fatalf("answer: %s", client.answer.Bytes())
			}
		}
	})
}

// One call there and back, with a Filter that changes nothing: what Translate
// itself costs.
func BenchmarkTranslate(b *testing.B) {
	call := jsonrpc.NewRequest(jsonrpc.IntID(7), "tools/call", []byte(`{"text":"`+strings.Repeat("x", 100)+`"}`))
	for name, wrap := range map[string]func(bridge.PullConn) bridge.PullConn{
		"pipe": func(c bridge.PullConn) bridge.PullConn { return c },
		"translated": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(translate.Wrap(bridge.Push(c), passing{}, nil))
		},
	} {
		b.Run(name, func(b *testing.B) {
			ours, theirs := bridge.PullPipe()
			go echo(theirs, []byte(`{"text":"`+strings.Repeat("x", 100)+`"}`))
			c := wrap(ours)
			defer c.Close()
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Send(b.Context(), call); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Recv(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type dialFunc func(ctx context.Context) (bridge.PullConn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return bridge.PushDialed(f(ctx)) }
