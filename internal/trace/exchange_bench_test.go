package trace

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reply is a ResponseWriter that keeps nothing.
type reply struct{ header http.Header }

func (r *reply) Header() http.Header            { return r.header }
func (r *reply) Write(text []byte) (int, error) { return len(text), nil }
func (r *reply) WriteHeader(int)                {}

// post returns a request as clients make it.
func post() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"Go-http-client/1.1"},
		"Mcp-Session-Id": {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, "Mcp-Protocol-Version": {"2025-06-18"}, "Accept-Encoding": {"gzip"}, "Content-Length": {"100"}}
	return r
}

// What an HTTP exchange costs that is watched, and that is traced into a Ring.
func BenchmarkExchange(b *testing.B) {
	for name, watch := range map[string]func(b *testing.B, o *observe.Observer) (stop func()){
		"off":     func(*testing.B, *observe.Observer) func() { return func() {} },
		"observe": func(_ *testing.B, o *observe.Observer) func() { return o.Watch(nowhere{}) },
		"ring":    func(b *testing.B, o *observe.Observer) func() { return recorder(b, o).AddSink(NewRing(RingOptions{})) },
	} {
		b.Run(name, func(b *testing.B) {
			var o observe.Observer
			stop := watch(b, &o)
			defer stop()
			text := []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header()["Content-Type"] = []string{"application/json"}
				_, _ = w.Write(text)
			})
			r := post()
			b.ReportAllocs()
			for b.Loop() {
				r.Body = io.NopCloser(strings.NewReader(""))
				o.ServeHTTP(h, &reply{http.Header{}}, r)
			}
		})
	}
}

// handsOn is a Sink that sends on to a Conn.
type handsOn struct {
	taker
	to bridge.Conn
}

func (h handsOn) TrySend(m jsonrpc.Message) bool { return h.to.TrySend(m) }

// What a call costs at both ends, of four messages and an HTTP exchange, as a bridge over HTTP has them.
func BenchmarkCall(b *testing.B) {
	for name, watch := range map[string]func(b *testing.B, o *observe.Observer) (stop func()){
		"off":     func(*testing.B, *observe.Observer) func() { return func() {} },
		"observe": func(_ *testing.B, o *observe.Observer) func() { return o.Watch(nowhere{}) },
		"ring":    func(b *testing.B, o *observe.Observer) func() { return recorder(b, o).AddSink(NewRing(RingOptions{})) },
		"file":    recordToFile,
	} {
		b.Run(name, func(b *testing.B) {
			var o observe.Observer
			defer watch(b, &o)()
			session := o.OpenUnannounced("files", "http")
			client, server := &passing{}, &passing{}
			down, up := session.Conn(client, observe.Downstream), session.Conn(server, observe.Upstream)
			_, _ = down.Receive(b.Context(), handsOn{to: up}), up.Receive(b.Context(), handsOn{to: down})
			all := messages(b)
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				client.sink.TrySend(all[0])
				server.sink.TrySend(all[1])
				_, _ = w.Write(nil)
			})
			r, w := post(), &reply{http.Header{"Content-Type": {"application/json"}, "Content-Length": {"100"}, "X-Content-Type-Options": {"nosniff"}}}
			b.ReportAllocs()
			for b.Loop() {
				o.ServeHTTP(h, w, r)
			}
		})
	}
}
