package metrics

import (
	"context"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// giver hands on a message when it is told to.
type giver struct {
	bridge.Conn
	sink bridge.Sink
}

func (g *giver) TrySend(jsonrpc.Message) bool { return true }

func (g *giver) Receive(_ context.Context, sink bridge.Sink) error { g.sink = sink; return nil }

// passing is a Sink that sends on.
type passing struct {
	bridge.Sink
	to bridge.Conn
}

func (p passing) TrySend(m jsonrpc.Message) bool { return p.to.TrySend(m) }

// nothing is a Watcher that does nothing.
type nothing struct{}

func (nothing) Message(*observe.Passed) {}
func (nothing) Event(observe.Event)     {}

// calling returns what makes a call that passes both ends, and is answered: four messages.
func calling(tb testing.TB, o *observe.Observer) func() {
	session := o.OpenUnannounced("x", "http")
	client, server := &giver{}, &giver{}
	down, up := session.Conn(client, observe.Downstream), session.Conn(server, observe.Upstream)
	bridgetest.Must(tb, down.Receive(tb.Context(), passing{to: up}))
	bridgetest.Must(tb, up.Receive(tb.Context(), passing{to: down}))
	request := bridgetest.Parse(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
	answer := bridgetest.Parse(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"3"}]}}`)
	return func() {
		client.sink.TrySend(request)
		server.sink.TrySend(answer)
	}
}

// What a call costs, of four messages, with nobody who watches, with a Watcher that does nothing, and with Metrics.
func BenchmarkCall(b *testing.B) {
	for name, watch := range map[string]func(o *observe.Observer) (stop func()){
		"off":     func(*observe.Observer) func() { return func() {} },
		"watched": func(o *observe.Observer) func() { return o.WatchFor(nothing{}, observe.Needs{}) },
		"metrics": New(Options{}).Watch,
		"tools":   New(Options{ToolLabels: true}).Watch,
	} {
		b.Run(name, func(b *testing.B) {
			var o observe.Observer
			defer watch(&o)()
			call := calling(b, &o)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}

// To count a call costs no memory, beside what it costs to watch it.
func TestAllocations(t *testing.T) {
	if raced {
		t.Skip("memory is not used again")
	}
	var o observe.Observer
	call := calling(t, &o)
	stop := o.Watch(nothing{})
	floor := testing.AllocsPerRun(1000, call)
	stop()
	defer New(Options{ToolLabels: true}).Watch(&o)()
	if n := testing.AllocsPerRun(1000, call); n > floor {
		t.Errorf("%v allocations a call, and %v without Metrics", n, floor)
	}
}
