package streamhttp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

var benchSizes = []struct {
	name string
	size int
}{{"100B", 100}, {"10KB", 10_000}, {"1MB", 1_000_000}}

// echo answers each call with its params, where it comes up. A call of notify is answered
// with that many notifications first.
func echo(notify int) bridge.Handler {
	note := jsonrpc.NewNotification("notifications/message", []byte(`{"level":"info","data":"`+strings.Repeat("x", 30)+`"}`))
	return bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		return c.Receive(ctx, &echoing{c, note, notify})
	})
}

type echoing struct {
	client bridge.Conn
	note   jsonrpc.Message
	notify int
}

func (e *echoing) TrySend(m jsonrpc.Message) bool {
	return m.Kind() != jsonrpc.Request || m.Method() != "notify" && e.client.TrySend(e.answer(m))
}

func (e *echoing) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Method() == "notify" {
		for range e.notify {
			if err := e.client.Send(ctx, e.note); err != nil {
				return err
			}
		}
	}
	return e.client.Send(ctx, e.answer(m))
}

func (e *echoing) answer(m jsonrpc.Message) jsonrpc.Message {
	if m.Method() == "initialize" {
		return jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-11-25"}`))
	}
	return jsonrpc.NewResult(m.ID(), m.Params())
}

func benchBody(method string, size int) []byte {
	frame := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"pad":""}}`
	return []byte(strings.Replace(frame, `""`, `"`+strings.Repeat("x", max(size-len(frame), 0))+`"`, 1))
}

// nowhere is a ResponseWriter that keeps nothing.
type nowhere struct {
	header http.Header
	status int
	bytes  int64
}

func (w *nowhere) Header() http.Header  { return w.header }
func (w *nowhere) WriteHeader(code int) { w.status = code }
func (w *nowhere) Flush()               {}
func (w *nowhere) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	return len(p), nil
}

func benchSession(b *testing.B, h *Handler) (session string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`))
	r.Header.Set("Content-Type", wire.TypeJSON)
	h.ServeHTTP(w, r)
	session = w.Header().Get(wire.HeaderSession)
	if session == "" {
		b.Fatalf("no session: %d %s", w.Code, w.Body)
	}
	return session
}

// BenchmarkHandler is one exchange through a Handler without a network: what
// the bridge's own code costs.
func BenchmarkHandler(b *testing.B) {
	run := func(name string, body []byte, notify int) {
		b.Run(name, func(b *testing.B) {
			h := NewHandler(echo(notify), HandlerOptions{})
			defer h.Close()
			header := http.Header{
				"Content-Type": {wire.TypeJSON}, "Accept": {wire.AcceptBoth},
				wire.HeaderSession: {benchSession(b, h)}, wire.HeaderVersion: {version2025_11_25},
			}
			b.ReportAllocs()
			b.SetBytes(int64(2 * len(body)))
			for b.Loop() {
				r := (&http.Request{
					Method: "POST", Host: "127.0.0.1", Header: header, ContentLength: int64(len(body)),
					Body: io.NopCloser(bytes.NewReader(body)),
				}).WithContext(b.Context())
				w := &nowhere{header: make(http.Header)}
				h.ServeHTTP(w, r)
				if w.bytes < int64(len(body)-30) {
					b.Fatalf("status %d, %d bytes", w.status, w.bytes)
				}
			}
			if notify > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*notify), "ns/notification")
			}
		})
	}
	for _, s := range benchSizes {
		run(s.name, benchBody("x", s.size), 0)
	}
	run("1000-notifications", benchBody("notify", 100), 1000)
}

// BenchmarkServed is one exchange over a loopback connection that is kept
// alive, and the same bytes through bare net/http, which is its floor.
func BenchmarkServed(b *testing.B) {
	for _, s := range benchSizes {
		body := benchBody("x", s.size)
		b.Run(s.name, func(b *testing.B) {
			h := NewHandler(echo(0), HandlerOptions{})
			srv := httptest.NewServer(h)
			defer srv.Close()
			defer h.Close()
			benchExchange(b, srv.Listener.Addr().String(), benchSession(b, h), body)
		})
		b.Run(s.name+"/floor", func(b *testing.B) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := make([]byte, r.ContentLength)
				_, _ = io.ReadFull(r.Body, body)
				w.Header()["Content-Type"] = valueJSON
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				_, _ = w.Write(body)
			}))
			defer srv.Close()
			benchExchange(b, srv.Listener.Addr().String(), "x", body)
		})
	}
}

// benchExchange posts body again and again, with a client that costs little.
func benchExchange(b *testing.B, addr, session string, body []byte) {
	c, err := net.Dial("tcp", addr)
	bridgetest.Must(b, err)
	defer c.Close()
	request := append(fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\nContent-Type: %s\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n",
		addr, wire.AcceptBoth, wire.TypeJSON, session, len(body)), body...)
	br := bufio.NewReaderSize(c, 64<<10)
	b.ReportAllocs()
	b.SetBytes(int64(2 * len(body)))
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		length := -1
		for {
			line, err := br.ReadSlice('\n')
			bridgetest.Must(b, err)
			if len(line) == 2 {
				break
			}
			_, _ = fmt.Sscanf(string(line), "Content-Length: %d", &length)
		}
		if length < 0 {
			b.Fatal("the reply has no Content-Length")
		}
		if _, err := br.Discard(length); err != nil {
			b.Fatal(err)
		}
	}
}
