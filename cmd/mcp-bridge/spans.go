package main

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/spans"
)

// sendSpans makes spans of what observer tells, until stop is called, if the environment names an
// OpenTelemetry collector. hide takes secrets out of texts. Without spans the bridge works all the same.
func sendSpans(ctx context.Context, observer *observe.Observer, hide func(string) string, env environment, log hclog.Logger) (stop func()) {
	lookup := spans.LookupEnv(env.lookup)
	if !spans.Enabled(lookup) {
		return func() {}
	}
	s, err := spans.New(ctx, lookup, func(err error, failed int) {
		if failed == 0 {
			log.Warn("the settings of spans are not right", "error", err)
			return
		}
		log.Warn("spans could not be sent to the OpenTelemetry collector; this is said every ten minutes at most", "error", err, "failed", failed)
	})
	if err != nil {
		log.Warn("no spans are sent", "error", err)
		return func() {}
	}
	s.SetRedact(hide)
	unwatch := s.Watch(observer)
	return func() {
		unwatch()
		s.Close()
	}
}
