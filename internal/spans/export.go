package spans

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	warningInterval = 10 * time.Minute // how long no other failure is warned of after one
	maxWarningText  = 300              // how many bytes of a warning's text are kept: a collector's reply is in it
)

// exporter sends spans. It tells warn of failures, once in warningInterval at most, and returns no error of ExportSpans. abort
// stops it.
type exporter struct {
	sdktrace.SpanExporter                             // sends the spans to the collector
	warn                  func(err error, failed int) // is told of failures and of settings that are not understood; see New
	hider                 *secretHider                // takes secrets out of errors; nil: there is nothing to hide
	ctx                   context.Context             // done: nothing is sent any more
	stop                  context.CancelFunc          // ends ctx
	lastSpansSent         chan struct{}               // closed when Shutdown has returned: no ExportSpans runs any more

	mu                   sync.Mutex // guards nextWarning and failuresSinceWarning
	nextWarning          time.Time  // when warn may be called again
	failuresSinceWarning int        // how many failures there were since warn was last called for one
}

// newExporter returns an exporter that sends spans by inner. warn is that of New.
func newExporter(inner sdktrace.SpanExporter, warn func(err error, failed int)) *exporter {
	e := &exporter{SpanExporter: inner, warn: warn, lastSpansSent: make(chan struct{})}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements trace.SpanExporter. It sends spans, and reports a failure itself, so it returns nil. After abort it sends nothing.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	if err := e.ctx.Err(); err != nil {
		return nil // that the collector took too long was told
	}
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err == nil:
	case e.ctx.Err() != nil:
		e.reportFailure(errors.New("the collector took too long at the end"))
	default:
		e.reportFailure(err)
	}
	return nil
}

// Shutdown implements trace.SpanExporter. The SDK calls it when it sends no more spans; abort waits for it.
func (e *exporter) Shutdown(context.Context) error {
	defer close(e.lastSpansSent)
	return e.SpanExporter.Shutdown(context.Background()) // waits for nothing
}

// abort ends the sending, and waits for Shutdown.
func (e *exporter) abort() {
	e.stop()
	<-e.lastSpansSent
}

// reportFailure counts a failure, and warns of it unless a warning was given less than warningInterval ago.
func (e *exporter) reportFailure(err error) {
	e.mu.Lock()
	e.failuresSinceWarning++
	now, count := time.Now(), e.failuresSinceWarning
	due := !now.Before(e.nextWarning)
	if due {
		e.nextWarning, e.failuresSinceWarning = now.Add(warningInterval), 0
	}
	e.mu.Unlock()
	if due {
		e.warn(e.redactedError(err), count)
	}
}

// warnOfSetting tells at once of a setting that the SDK does not understand. It does not count as a warning of a failure.
func (e *exporter) warnOfSetting(err error) { e.warn(e.redactedError(err), 0) }

// redactedError returns an error as it is told: one line, not long, without secrets.
func (e *exporter) redactedError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if e.hider != nil {
		text = e.hider.hide(text) // before it is cut: half a secret would not be found
	}
	return errors.New(truncate(text, maxWarningText))
}
