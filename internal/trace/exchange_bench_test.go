package trace

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// reply is a ResponseWriter that keeps nothing.
type reply struct{ header http.Header }

func (r *reply) Header() http.Header            { return r.header }
func (r *reply) Write(text []byte) (int, error) { return len(text), nil }
func (r *reply) WriteHeader(int)                {}

// What an HTTP exchange costs that is watched, and that is traced into a Ring.
func BenchmarkExchange(b *testing.B) {
	for name, watch := range map[string]func(b *testing.B, o *observe.Observer) (stop func()){
		"off":     func(*testing.B, *observe.Observer) func() { return func() {} },
		"observe": func(_ *testing.B, o *observe.Observer) func() { return o.Watch(nowhere{}) },
		"ring":    func(b *testing.B, o *observe.Observer) func() { return recorder(b, o).Use(NewRing(RingOptions{})) },
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
			r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"Go-http-client/1.1"},
				"Mcp-Session-Id": {"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, "Mcp-Protocol-Version": {"2025-06-18"}, "Accept-Encoding": {"gzip"}, "Content-Length": {"100"}}
			b.ReportAllocs()
			for b.Loop() {
				r.Body = io.NopCloser(strings.NewReader(""))
				o.ServeHTTP(h, &reply{http.Header{}}, r)
			}
		})
	}
}
