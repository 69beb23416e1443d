package mux_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// lone is a client's Conn that is one request long.
type lone struct{ asked, answer jsonrpc.Message }

func (s *lone) Receive(ctx context.Context, sink bridge.Sink) error {
	if err := sink.Send(ctx, s.asked); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *lone) Send(_ context.Context, m jsonrpc.Message) error {
	s.answer = m
	return nil
}

func (s *lone) TrySend(m jsonrpc.Message) bool {
	s.answer = m
	return true
}

func (s *lone) Close(error) error { return nil }

// echoing is a Sink that answers each request, in the goroutine of Receive.
type echoing struct {
	c      bridge.Conn
	result []byte
}

func (e echoing) TrySend(jsonrpc.Message) bool { return false }

func (e echoing) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	return e.c.Send(ctx, jsonrpc.NewResult(m.ID(), e.result))
}

// echoServer returns a Conn to a server that answers each request at once.
func echoServer(result []byte) bridge.Conn {
	ours, theirs := bridge.Pipe()
	go theirs.Receive(context.Background(), echoing{theirs, result})
	return ours
}

// answers is a Sink of what comes back.
type answers chan jsonrpc.Message

func (a answers) TrySend(m jsonrpc.Message) bool {
	a <- m
	return true
}

func (a answers) Send(_ context.Context, m jsonrpc.Message) error {
	a <- m
	return nil
}

// callAndWait is one call after the other over c.
func callAndWait(b *testing.B, c bridge.Conn, call jsonrpc.Message) {
	got := make(answers, 1)
	go c.Receive(context.Background(), got)
	b.ReportAllocs()
	for b.Loop() {
		if !c.TrySend(call) {
			bridgetest.Must(b, c.Send(b.Context(), call))
		}
		<-got
	}
	_ = c.Close(nil)
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// One call of 2026-07-28, 100 bytes each way: first the server alone, at the
// other end of a Pipe, then through Mux and Exchange. The difference is what
// these cost.
func BenchmarkModernCall(b *testing.B) {
	call, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + modernMeta +
		`,"name":"echo","arguments":{"text":"` + strings.Repeat("x", 100) + `"}}}`))
	bridgetest.Must(b, err)
	result := []byte(`{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}`)
	b.Run("pipe", func(b *testing.B) {
		callAndWait(b, echoServer(result), call)
	})
	b.Run("mux", func(b *testing.B) {
		x := mux.New(mux.Options{Dialer: dialFunc(func(context.Context) (bridge.Conn, error) { return echoServer(result), nil })})
		defer x.Close()
		b.ReportAllocs()
		for b.Loop() {
			client := &lone{asked: call}
			server, err := x.Dial(b.Context())
			bridgetest.Must(b, err)
			bridgetest.Must(b, bridge.Exchange(b.Context(), client, server, bridge.PumpOptions{}))
			_ = server.Close(nil)
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
	result := []byte(`{"text":"` + strings.Repeat("x", 100) + `"}`)
	b.Run("pipe", func(b *testing.B) { callAndWait(b, echoServer(result), call) })
	b.Run("translated", func(b *testing.B) {
		callAndWait(b, translate.Wrap(echoServer(result), bridgetest.PassingFilter{}, nil), call)
	})
}

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }
