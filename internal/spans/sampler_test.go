package spans

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The sampler is the one that the SDK takes from the same variables.
func TestSamplerFromEnv(t *testing.T) {
	parents := []trace.SpanContext{{}}
	for _, flags := range []trace.TraceFlags{0, trace.FlagsSampled} {
		for id := range byte(20) {
			parents = append(parents, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 8: id * 13}, SpanID: trace.SpanID{1}, TraceFlags: flags, Remote: true}))
		}
	}
	for _, c := range [][2]string{
		{"", ""}, {"", "0.5"}, {"always_on", ""}, {"always_off", ""}, {"Always_Off ", ""}, {"traceidratio", ""}, {"traceidratio", "0.3"}, {"traceidratio", " 0.3 "},
		{"traceidratio", "0"}, {"traceidratio", "2"}, {"traceidratio", "-1"}, {"traceidratio", "x"}, {"parentbased_always_on", ""}, {"parentbased_always_off", ""},
		{"parentbased_traceidratio", ""}, {"parentbased_traceidratio", "0.3"}, {"parentbased_traceidratio", "y"}, {"jaeger_remote", ""},
	} {
		t.Run(c[0]+" "+c[1], func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", c[0])
			t.Setenv("OTEL_TRACES_SAMPLER_ARG", c[1])
			s := newSpans(newExporter(&discarding{}, func(error, int) {}), nil, false)
			defer s.Close()
			sdk := sdktrace.NewTracerProvider().Tracer("")
			for _, parent := range parents {
				ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
				span, sent := s.startServerSpan("m", parent)
				if !parent.IsValid() {
					ctx = context.WithValue(context.Background(), traceIDKey{}, sent.TraceID())
					sdk = sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(idGenerator{})).Tracer("")
				}
				_, want := sdk.Start(ctx, "m")
				if got := sent.TraceFlags(); got != want.SpanContext().TraceFlags() || (span != nil) != want.IsRecording() || sent.TraceID() != want.SpanContext().TraceID() {
					t.Errorf("below %v: flags %v of trace %v, and the SDK has %v", parent, got, sent.TraceID(), want.SpanContext())
				}
				if span != nil {
					span.End()
				}
			}
		})
	}
}

// looker is an observe.Watcher that counts messages.
type looker struct{ n int }

func (l *looker) Message(*observe.Passed) { l.n++ }
func (l *looker) Event(observe.Event)     {}

// Who looks along sees messages where all calls are sampled, also if the client may say otherwise.
func TestCompany(t *testing.T) {
	for name, want := range map[string]int{"": 1, "always_on": 1, "always_off": 0, "traceidratio": 0, "parentbased_always_off": 0} {
		t.Setenv("OTEL_TRACES_SAMPLER", name)
		var o observe.Observer
		var l looker
		stopLooking := o.WatchAlong(&l)
		s := newSpans(newExporter(&discarding{}, func(error, int) {}), nil, false)
		stop := s.Watch(&o)
		note := func() {
			o.OpenUnannounced("x", "http").Conn(&giver{}, observe.Upstream).TrySend(jsonrpc.NewNotification("n", nil))
		}
		note()
		stop()
		note()
		if s.Close(); l.n != want {
			t.Errorf("%q: %d messages are seen, want %d", name, l.n, want)
		}
		stopLooking()
	}
}

// Of requests without a parent as many are sampled as the ratio says.
func TestRatio(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	s := newSpans(newExporter(&discarding{}, func(error, int) {}), nil, false)
	defer s.Close()
	sampled := 0
	for range 10_000 {
		if span, c := s.startServerSpan("m", trace.SpanContext{}); span != nil {
			if sampled++; !c.IsSampled() {
				t.Fatal("a span that is recorded is told as one that is not")
			}
			span.End()
		}
	}
	if sampled < 2200 || sampled > 2800 {
		t.Errorf("%d of 10000 are sampled", sampled)
	}
}
