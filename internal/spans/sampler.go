package spans

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// samplerFromEnv returns the sampler that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG ask for, as the SDK reads them. The
// SDK itself warns of mistakes. We need the sampler to ask it first: a request that is not sampled costs a third without a span of the SDK.
func samplerFromEnv(env LookupEnv) sdktrace.Sampler {
	ratio, err := strconv.ParseFloat(env.get("OTEL_TRACES_SAMPLER_ARG"), 64)
	if err != nil || ratio < 0 || ratio > 1 {
		ratio = 1
	}
	switch strings.ToLower(env.get("OTEL_TRACES_SAMPLER")) {
	case "always_on":
		return sdktrace.AlwaysSample()
	case "always_off":
		return sdktrace.NeverSample()
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio)
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample())
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))
	}
	return sdktrace.ParentBased(sdktrace.AlwaysSample())
}

// idGenerator is a sdktrace.IDGenerator that makes random ids, as that of the SDK does. But the id of a trace that startServerSpan
// begins is that with which the sampler was asked.
type idGenerator struct{}

// traceIDKey is the key in a ctx of the trace.TraceID that NewIDs is to return for a span that begins a trace.
type traceIDKey struct{}

// NewIDs implements sdktrace.IDGenerator. The id of the trace is that of traceIDKey in ctx, or else a new one.
func (g idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, ok := ctx.Value(traceIDKey{}).(trace.TraceID)
	if !ok {
		id = newTraceID()
	}
	return id, newSpanID()
}

// NewSpanID implements sdktrace.IDGenerator. It returns a random id.
func (idGenerator) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

// newTraceID returns a random id for a trace.
func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// newSpanID returns a random id for a span.
func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// startServerSpan begins the SERVER span of a request below the span parent; if that is invalid, the span begins a trace. c is the span
// context that is passed on. If the sampler does not want the span, span is nil, and c says so.
func (s *Spans) startServerSpan(method string, parent trace.SpanContext) (span trace.Span, c trace.SpanContext) {
	ctx, id := context.Background(), parent.TraceID()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		id = newTraceID()
	}
	answer := s.sampler.ShouldSample(sdktrace.SamplingParameters{ParentContext: ctx, TraceID: id, Name: method, Kind: trace.SpanKindServer})
	if answer.Decision == sdktrace.Drop {
		return nil, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: id, SpanID: newSpanID(), TraceFlags: parent.TraceFlags() &^ trace.FlagsSampled, TraceState: answer.Tracestate,
		})
	}
	if !parent.IsValid() {
		ctx = context.WithValue(ctx, traceIDKey{}, id) // so that the SDK decides the same
	}
	_, span = s.tracer.Start(ctx, method, serverSpanOptions...)
	return span, span.SpanContext()
}
