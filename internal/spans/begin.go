package spans

import (
	"bytes"
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// requestSpan is the span of a request at one end of the bridge, or what stands for it if it is not sampled.
type requestSpan struct {
	spanContext    trace.SpanContext // the context of the span: what is sent on names it as its parent
	passesParentOn bool              // the request is sent on with the parent that it came with, and not with spanContext
	*recordedSpan                    // nil: the sampler does not want it
}

// recordedSpan is a span that is sent to the collector.
type recordedSpan struct {
	trace.Span
	session       *observe.Session  // the session that its request belongs to
	key           requestKey        // the key of its request in openSpans.byRequestID
	progressToken jsonrpc.ID        // the progress token of its request; zero: none
	firstRound    trace.SpanContext // the span of the first round, if its request goes on with a call of several rounds (requestState); invalid: no earlier round is known

	parent          *recordedSpan   // the SERVER span of a CLIENT span; nil: none
	children        []*recordedSpan // the CLIENT spans of a SERVER span
	cancelled       bool            // the bridge has received a cancellation of its request
	cancelForwarded bool            // of a SERVER span: the bridge has sent a cancellation of a request below it
	ended           bool            // endSpan has begun
}

var (
	serverSpanOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)} // make a span a SERVER span
	clientSpanOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)} // make a span a CLIENT span
)

// isReceived reports whether a message has come to the bridge, and was not sent by it.
func isReceived(p *observe.Passed) bool {
	return (p.Hop == observe.Downstream) == (p.Dir == observe.ToServer)
}

// requestSpanOf returns the span that is kept with a Call; nil: there is none, or c is nil.
func (s *Spans) requestSpanOf(c *observe.Call) *requestSpan {
	if c == nil {
		return nil
	}
	one, _ := c.Get(s).(*requestSpan)
	return one
}

// Sample implements observe.Sampler: it begins the SERVER span of a request, if the OpenTelemetry sampler wants that (wanted). sample
// is a *requestSpan in any case.
func (s *Spans) Sample(m jsonrpc.Message) (sample any, wanted bool) {
	parent, around := remoteParentOf(&m), trace.SpanContext{}
	inMeta := parent.IsValid()
	if mark := m.Mark(); mark != nil && mark.Traceparent != "" {
		if around = parseTraceContext(mark.Traceparent, mark.Tracestate); !inMeta {
			parent = around
		}
	}
	began, context := s.startServerSpan(m.Method(), parent)
	one := &requestSpan{spanContext: context}
	if wanted = began != nil; wanted {
		one.recordedSpan = &recordedSpan{Span: began}
		if inMeta && around.IsValid() {
			began.AddLink(trace.Link{SpanContext: around})
		}
	} else {
		one.passesParentOn = inMeta && !parent.IsSampled()
	}
	return one, wanted
}

// Rewrite implements observe.Sampler: it begins the CLIENT span of a request, unless it has done so before, and returns the request
// with that span as its parent.
func (s *Spans) Rewrite(p *observe.Passed) jsonrpc.Message {
	one := s.requestSpanOf(p.Call)
	if one == nil {
		one = s.beginClientSpan(p)
		p.Call.Set(s, one)
	}
	return s.RewriteUnsampled(p.Message, one)
}

// RewriteUnsampled implements observe.Sampler: it returns the request m with the span context of sample, a *requestSpan, as its
// parent; as it is, if it goes on with the parent that it came with, or has no place for one. Rewrite calls it, too, with a span
// that is sampled.
func (s *Spans) RewriteUnsampled(m jsonrpc.Message, sample any) jsonrpc.Message {
	one := sample.(*requestSpan)
	if params := m.Params(); one.passesParentOn || len(params) > 0 && params[0] != '{' {
		return m
	}
	return withTraceContext(&m, one.spanContext)
}

// beginClientSpan begins the CLIENT span of a request that is about to be sent: below the SERVER span of the request that it was made
// of, or else below the span that it names as its parent. If the span is not sampled, recordedSpan of the result is nil.
func (s *Spans) beginClientSpan(p *observe.Passed) *requestSpan {
	from := s.requestSpanOf(p.Origin)
	ctx := context.Background()
	var parent *recordedSpan
	if from != nil {
		parent = from.recordedSpan
		ctx = trace.ContextWithSpan(ctx, parent.Span)
	} else if remote := remoteParentOf(&p.Message); remote.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	_, began := s.tracer.Start(ctx, p.Call.Method, clientSpanOptions...)
	one := &requestSpan{spanContext: began.SpanContext()}
	if began.IsRecording() {
		one.recordedSpan = &recordedSpan{Span: began, parent: parent}
		s.addOpenSpan(one.recordedSpan, p)
	}
	return one
}

// traceSubstring is in the keys of _meta that belong to trace context: traceparent and tracestate.
var traceSubstring = []byte("trace")

// mayHaveTraceContext reports whether members of _meta, as JSON, may belong to trace context. It is false only if that is sure.
func mayHaveTraceContext(meta []byte) bool {
	return bytes.Contains(meta, traceSubstring) || bytes.IndexByte(meta, '\\') >= 0
}

// remoteParentOf returns the span context that m has in params._meta, as SEP-414 has it; invalid: there is none.
func remoteParentOf(m *jsonrpc.Message) trace.SpanContext {
	if !mayHaveTraceContext(m.Meta()) {
		return trace.SpanContext{}
	}
	parent, _ := jsonrpc.Text(m.Lookup("params", "_meta", "traceparent"))
	if parent == "" {
		return trace.SpanContext{}
	}
	state, _ := jsonrpc.Text(m.Lookup("params", "_meta", "tracestate"))
	return parseTraceContext(parent, state)
}

// parseTraceContext reads W3C trace context: parent is a traceparent, and state a tracestate, "" for none. The result is invalid if
// parent is.
func parseTraceContext(parent, state string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	return trace.SpanContextFromContext(ctx)
}

// withTraceContext returns m with the span context c in params._meta, in place of one that is there.
func withTraceContext(m *jsonrpc.Message, c trace.SpanContext) jsonrpc.Message {
	var room [160]byte
	text := append(room[:0], `"traceparent":"00-`...)
	traceID, spanID := c.TraceID(), c.SpanID()
	text = hex.AppendEncode(text, traceID[:])
	text = hex.AppendEncode(append(text, '-'), spanID[:])
	text = hex.AppendEncode(append(text, '-'), []byte{byte(c.TraceFlags())})
	text = append(text, '"')
	if c.TraceState().Len() > 0 {
		text = append(append(text, `,"tracestate":`...), jsonrpc.Quote(c.TraceState().String())...)
	}
	f := jsonrpc.TrustedFragment(string(text))
	if !mayHaveTraceContext(m.Meta()) {
		return m.WithMeta(f)
	}
	return m.WithMetaOf(f, "traceparent", "tracestate")
}
