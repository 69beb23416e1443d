package streamhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// atOnce answers each request with its params.
var atOnce = answering(0)

// answering does so after some notifications.
func answering(notify int) bridge.Handler {
	note := jsonrpc.NewNotification("notifications/message", []byte(`{"level":"info","data":"`+strings.Repeat("x", 30)+`"}`))
	return bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		return c.Receive(ctx, &answeringOnce{c, note, notify})
	})
}

type answeringOnce struct {
	client bridge.Conn
	note   jsonrpc.Message
	notify int
}

func (a *answeringOnce) TrySend(jsonrpc.Message) bool { return false }

func (a *answeringOnce) Send(ctx context.Context, m jsonrpc.Message) error {
	for range a.notify {
		if err := a.client.Send(ctx, a.note); err != nil {
			return err
		}
	}
	return a.client.Send(ctx, jsonrpc.NewResult(m.ID(), m.Params()))
}

const metaOfBench = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func modernBody(size int) []byte {
	return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` + strings.Repeat("x", size) + `"},` + metaOfBench + `}}`)
}

func modernHeader() http.Header {
	return http.Header{
		"Content-Type": {wire.TypeJSON}, "Accept": {wire.AcceptBoth},
		wire.HeaderVersion: {"2026-07-28"}, wire.HeaderMCPMethod: {"tools/call"}, wire.HeaderMCPName: {"echo"},
	}
}

// BenchmarkServerModern is one exchange of 2026-07-28 with a server that answers at
// once, and the same bytes in a legacy session; both without a network.
func BenchmarkServerModern(b *testing.B) {
	h := NewHandler(echo(0), HandlerOptions{Modern: atOnce})
	defer h.Close()
	legacy := http.Header{
		"Content-Type": {wire.TypeJSON}, "Accept": {wire.AcceptBoth},
		wire.HeaderSession: {benchSession(b, h)}, wire.HeaderVersion: {version2025_11_25},
	}
	for _, s := range benchSizes {
		body := modernBody(s.size)
		old := bytes.Replace(body, []byte(metaOfBench), []byte(`"_meta":{"progressToken":1}`), 1)
		b.Run(s.name, func(b *testing.B) { benchHandler(b, h, modernHeader(), body) })
		b.Run(s.name+"/legacy", func(b *testing.B) { benchHandler(b, h, legacy, old) })
	}
}

// BenchmarkServerModernStream is a call with a thousand notifications.
func BenchmarkServerModernStream(b *testing.B) {
	h := NewHandler(nil, HandlerOptions{Modern: answering(1000)})
	defer h.Close()
	benchHandler(b, h, modernHeader(), modernBody(100))
}

func benchHandler(b *testing.B, h *Handler, header http.Header, body []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(2 * len(body)))
	ctx, cancel := context.WithCancel(b.Context()) // as net/http's can be
	defer cancel()
	for b.Loop() {
		r := (&http.Request{
			Method: "POST", Host: "127.0.0.1", Header: header, ContentLength: int64(len(body)),
			Body: io.NopCloser(bytes.NewReader(body)),
		}).WithContext(ctx)
		w := &nowhere{header: make(http.Header)}
		h.ServeHTTP(w, r)
		if w.bytes < int64(len(body)-100) {
			b.Fatalf("status %d, %d bytes", w.status, w.bytes)
		}
	}
}

// BenchmarkServerModernServed is the same over a loopback connection.
func BenchmarkServerModernServed(b *testing.B) {
	h := NewHandler(echo(0), HandlerOptions{Modern: atOnce})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	head := fmt.Sprintf("Mcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: echo", "2026-07-28")
	for _, s := range benchSizes {
		body := modernBody(s.size)
		b.Run(s.name, func(b *testing.B) {
			benchExchange(b, srv.Listener.Addr().String(), "x\r\n"+head, body)
		})
		old := bytes.Replace(body, []byte(metaOfBench), []byte(`"_meta":{"progressToken":1}`), 1)
		b.Run(s.name+"/legacy", func(b *testing.B) {
			benchExchange(b, srv.Listener.Addr().String(), benchSession(b, h), old)
		})
	}
}
