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

// callOverHTTP returns what passes a call and its answer at both ends, and its exchange: four messages and an event.
func callOverHTTP(tb testing.TB, o *observe.Observer) func() {
	tb.Helper()
	session := o.OpenUnannounced("files", "http")
	client, server := &passing{}, &passing{}
	down, up := session.Conn(client, observe.Downstream), session.Conn(server, observe.Upstream)
	_, _ = down.Receive(tb.Context(), handsOn{to: up}), up.Receive(tb.Context(), handsOn{to: down})
	all := messages(tb)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client.sink.TrySend(all[0])
		server.sink.TrySend(all[1])
		_, _ = w.Write(nil)
	})
	r, w := post(), &reply{http.Header{"Content-Type": {"application/json"}, "Content-Length": {"100"}, "X-Content-Type-Options": {"nosniff"}}}
	return func() { o.ServeHTTP(h, w, r) }
}

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
			call := callOverHTTP(b, &o)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// kept is a Watcher that keeps what a Recorder's records are made of.
type kept struct {
	rec *Recorder
	all []pendingRecord
}

func (k *kept) Message(p *observe.Passed) {
	k.all = append(k.all, pendingRecord{passed: *p, sinks: k.rec.sinks.Load(), findings: k.rec.findSecrets(p)})
}

func (k *kept) Event(e observe.Event) {
	k.all = append(k.all, pendingRecord{event: e, sinks: k.rec.sinks.Load()})
}

// nothing is a Sink that keeps nothing.
type nothing struct{}

func (nothing) MaxText() int  { return -1 }
func (nothing) Put([]byte)    {}
func (nothing) PutGap(uint64) {}

// What it costs to make a record and its line, of those that a call over HTTP has: four messages and an exchange.
func BenchmarkRecord(b *testing.B) {
	var o observe.Observer
	rec := recorder(b, &o)
	defer rec.AddSink(nothing{})()
	k := &kept{rec: rec}
	stop := o.Watch(k)
	callOverHTTP(b, &o)()
	stop()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l := k.all[i%len(k.all)]
		rec.record(&l)
	}
}
