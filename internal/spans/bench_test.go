package spans

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

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

// BenchmarkCall is what the observation of one call costs at both ends: four messages. In "beside" a call of the session that is
// sampled waits all the time, and the others are not sampled.
func BenchmarkCall(b *testing.B) {
	for _, c := range []struct {
		name, sampler, ratio string
	}{{"off", "", ""}, {"watched", "", ""}, {"none", "always_off", ""}, {"1%", "traceidratio", "0.01"}, {"beside", "parentbased_always_off", ""}, {"all", "always_on", ""}} {
		b.Run(c.name, func(b *testing.B) {
			b.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
			b.Setenv("OTEL_TRACES_SAMPLER_ARG", c.ratio)
			var o observe.Observer
			switch {
			case c.name == "watched":
				defer o.Watch(nothing{})()
			case c.sampler != "":
				s := newSpans(newExporter(&discarding{}, func(error, int) {}), resource.Empty(), false)
				defer s.Close()
				defer s.Watch(&o)()
			}
			session := o.OpenUnannounced("x", "http")
			client, server := &giver{}, &giver{}
			down, up := session.Conn(client, observe.Downstream), session.Conn(server, observe.Upstream)
			bridgetest.Must(b, down.Receive(b.Context(), passing{to: up}))
			bridgetest.Must(b, up.Receive(b.Context(), passing{to: down}))
			request := bridgetest.Parse(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
			answer := bridgetest.Parse(`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"3"}]}}`)
			if c.name == "beside" {
				client.sink.TrySend(bridgetest.Parse(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}`))
			}
			b.ReportAllocs()
			for b.Loop() {
				client.sink.TrySend(request)
				server.sink.TrySend(answer)
			}
		})
	}
}

// discarding is a collector that keeps nothing.
type discarding struct{}

func (discarding) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discarding) Shutdown(context.Context) error                             { return nil }

// nothing is a Watcher that does nothing.
type nothing struct{}

func (nothing) Message(*observe.Passed) {}
func (nothing) Event(observe.Event)     {}
