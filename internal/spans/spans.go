// Package spans makes OpenTelemetry spans of the requests that pass a bridge, and sends them
// to a collector over OTLP/HTTP (docs/spans.md).
//
// Each request has two spans, after the OpenTelemetry conventions for MCP: a SERVER span at
// the end of the bridge that has received it, and below it a CLIENT span at the end that has
// sent it on. What was sent on names the CLIENT span as its parent, in params._meta
// (SEP-414). The package is an observe.Sampler.
package spans

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// LookupEnv returns an environment variable, as os.LookupEnv does.
type LookupEnv func(name string) (string, bool)

// get returns the value of a variable without spaces around it; "": it is not set.
func (l LookupEnv) get(name string) string {
	text, _ := l(name)
	return strings.TrimSpace(text)
}

// Enabled reports whether the environment asks for spans: it names an OTLP endpoint, and
// does not turn spans off.
func Enabled(env LookupEnv) bool {
	return (env.get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "") &&
		!strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") && env.get("OTEL_TRACES_EXPORTER") != "none"
}

// Spans is an observe.Sampler that makes spans of requests, and has them sent to a collector. New makes it, and Close ends it.
type Spans struct {
	provider       *sdktrace.TracerProvider // the SDK's; Close shuts it down, which sends the last spans
	tracer         trace.Tracer             // begins spans
	sampler        sdktrace.Sampler         // the provider's
	exporter       *exporter                // sends the spans that have ended to the collector
	recordsContent bool                     // arguments, results and texts of notifications are in spans
	redact         func(string) string      // takes secrets out of a text (SetRedact); nil: nothing is taken out

	openSpanCount atomic.Int64                    // spans in openBySession
	mu            sync.Mutex                      // guards openBySession and firstRounds, and the fields of every recordedSpan that change
	openBySession map[*observe.Session]*openSpans // the spans that have not ended, by session
	firstRounds   firstRounds                     // the span of the first round of each call that has several rounds, because its server has asked for input
}

// New returns Spans that send to the endpoint that the environment names. The exporter and the
// SDK read their OTEL_* variables from the process's environment, not from env. warn is told
// when spans could not be sent: at first at once, then at most every ten minutes. failed is
// how many attempts have failed since warn was told last, this one included; 0: a setting is not understood.
// warn may be called in any goroutine, also before New has returned.
// err holds no secrets: of the collector's URL only scheme, host and port, and no value of its headers.
//
// The caller calls Close.
func New(ctx context.Context, env LookupEnv, warn func(err error, failed int)) (*Spans, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := env.get(name); protocol {
		case "":
			continue
		case "http/protobuf", "http/json":
		default:
			return nil, fmt.Errorf("%s is %q, but spans are sent over HTTP only: use http/protobuf, and the collector's port for that, most often 4318", name, protocol)
		}
		break
	}
	hide := newSecretHider(env)
	out := newExporter(nil, warn)
	out.hider = hide
	otel.SetLogger(logr.New(sdkLog{out.warnOfSetting}))
	settings := &settingWarner{warn: out.warnOfSetting, told: map[string]bool{}}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(settings.handle)) // nothing is sent yet: all errors are about settings
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(out.reportFailure))
	inner, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, errors.New(hide.hide(err.Error()))
	}
	out.SpanExporter = inner
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "mcp-bridge"),
		attribute.String("service.version", buildinfo.Version()),
		attribute.String("service.instance.id", rand.Text()), // the names of sessions are unique in a process
	), resource.WithFromEnv())
	if err != nil { // some of the environment is not understood; the rest counts
		settings.tell(unclearAttributes)
	}
	return newSpans(out, r, strings.EqualFold(env.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"), "true")), nil
}

// newSpans returns Spans of the resource r that send by out. content: arguments, results and texts of notifications become parts of spans.
func newSpans(out *exporter, r *resource.Resource, content bool) *Spans {
	sampler := samplerFromEnv(os.LookupEnv)
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(out), sdktrace.WithResource(r), sdktrace.WithSampler(sampler), sdktrace.WithIDGenerator(idGenerator{}))
	return &Spans{
		provider: p, sampler: sampler, exporter: out, recordsContent: content, openBySession: map[*observe.Session]*openSpans{},
		tracer: p.Tracer("github.com/mcp-bridge/mcp-bridge", trace.WithInstrumentationVersion(buildinfo.Version())),
	}
}

// closeTimeout is how long Close goes on sending spans.
const closeTimeout = 900 * time.Millisecond

// Close sends what is not sent yet, for closeTimeout at most, and returns when all goroutines
// have ended. Spans that have not ended are not sent.
func (s *Spans) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // the exporter tells its errors
	s.exporter.abort()
}

// SetRedact has texts of messages go through f before they become parts of spans. f takes secrets out, and may be called
// concurrently. SetRedact is called before Watch; without it nothing is taken out.
func (s *Spans) SetRedact(f func(text string) string) { s.redact = f }

// redacted returns a text without secrets, cut to about max bytes (truncate).
func (s *Spans) redacted(text string, max int) string {
	if s.redact != nil && text != "" {
		text = s.redact(truncate(text, max+maxContentBytes)) // more than is shown: half a secret would not be found
	}
	return truncate(text, max)
}

// Watch makes spans of what o tells, until stop is called. If all calls are sampled, it watches all messages: then those
// whom Observer.WatchAlong has added are told of them, too.
func (s *Spans) Watch(o *observe.Observer) (stop func()) {
	unwatch := o.WatchSamples(s)
	if d := s.sampler.Description(); d != sdktrace.AlwaysSample().Description() && d != sdktrace.ParentBased(sdktrace.AlwaysSample()).Description() {
		return unwatch
	}
	unwatchAll := o.WatchFor(nopWatcher{}, observe.Needs{})
	return func() { unwatchAll(); unwatch() }
}

// nopWatcher is an observe.Watcher that does nothing: while it watches, all messages are observed.
type nopWatcher struct{}

// Message implements observe.Watcher. It does nothing.
func (nopWatcher) Message(*observe.Passed) {}

// Event implements observe.Watcher. It does nothing.
func (nopWatcher) Event(observe.Event) {}
