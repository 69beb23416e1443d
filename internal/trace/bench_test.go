package trace

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type taker struct{ bridge.Conn }

func (taker) TrySend(jsonrpc.Message) bool                { return true }
func (taker) Send(context.Context, jsonrpc.Message) error { return nil }

type nowhere struct{}

func (nowhere) Message(*observe.Passed) {}
func (nowhere) Event(observe.Event)     {}

// messages are what is traced in the benchmarks.
func messages(tb testing.TB) (all []jsonrpc.Message) {
	tb.Helper()
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}]}}`,
	} {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// sending returns what passes a call and its answer to the Watchers.
func sending(tb testing.TB, o *observe.Observer) func() {
	all := messages(tb)
	c := &passing{}
	server := o.OpenUnannounced("files", "http").Conn(c, observe.Upstream)
	_ = server.Receive(tb.Context(), taker{})
	return func() {
		server.TrySend(all[0])
		c.sink.TrySend(all[1])
	}
}

func recorder(tb testing.TB, o *observe.Observer) *Recorder {
	return NewRecorder(o, redactor(tb, redact.Options{Secrets: []string{"hunter22", "another secret", "0123456789abcdef"}}))
}

// What a message costs: with nobody who watches, with a Watcher that does nothing, with a Ring, with a File. Each
// round is two messages.
func BenchmarkTrace(b *testing.B) {
	for name, watch := range map[string]func(b *testing.B, o *observe.Observer) (stop func()){
		"off":     func(*testing.B, *observe.Observer) func() { return func() {} },
		"observe": func(_ *testing.B, o *observe.Observer) func() { return o.Watch(nowhere{}) },
		"ring":    func(b *testing.B, o *observe.Observer) func() { return recorder(b, o).AddSink(NewRing(RingOptions{})) },
		"file":    recordToFile,
	} {
		b.Run(name, func(b *testing.B) {
			var o observe.Observer
			stop := watch(b, &o)
			send := sending(b, &o)
			b.ReportAllocs()
			for b.Loop() {
				send()
			}
			stop()
		})
	}
}

// Each message costs at most one allocation, watched or traced into a Ring or a File.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("memory is not used again")
	}
	var o observe.Observer
	send := sending(t, &o)
	if n := testing.AllocsPerRun(1000, send); n != 0 {
		t.Errorf("off: %v allocations", n)
	}
	f, err := NewFile(filepath.Join(t.TempDir(), "trace"), FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, watch := range map[string]func() (stop func()){
		"watched": func() func() { return o.Watch(nowhere{}) },
		"ring":    func() func() { return recorder(t, &o).AddSink(NewRing(RingOptions{})) },
		"file":    func() func() { return recorder(t, &o).AddSink(f) },
	} {
		stop := watch()
		if n := testing.AllocsPerRun(1000, send); n > 2 {
			t.Errorf("%s: %v allocations for two messages", name, n)
		}
		stop()
	}
	closed(t, f)
}

// recordToFile has all that o tells written to a File.
func recordToFile(b *testing.B, o *observe.Observer) (stop func()) {
	f, err := NewFile(filepath.Join(b.TempDir(), "trace"), FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	rec := recorder(b, o)
	release := rec.AddSink(f)
	return func() {
		release()
		rec.Wait()
		_ = f.Close()
		b.ReportMetric(float64(f.Lost())/float64(b.N), "lost/op")
	}
}

func BenchmarkReader(b *testing.B) {
	var text []byte
	for _, r := range samples() {
		text = Append(text, &r)
	}
	text = []byte(strings.Repeat(string(text), 100))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for _, err := range NewReader(strings.NewReader(string(text))).Records() {
			if err != nil && err != io.EOF {
				b.Fatal(err)
			}
		}
	}
}
