package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// Several errors in one are one line of the log, in text and in JSON, and
// whatever logger of ours they go through.
func TestLogOneLine(t *testing.T) {
	err := fmt.Errorf("failed: %w", errors.Join(errors.New("is it running?"), errors.New("no server"), errors.New("closed")))
	const want = `failed: is it running? No server; closed`
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log, logErr := (&logFlags{level: "trace", format: format}).logger(&out)
		if logErr != nil {
			t.Fatal(logErr)
		}
		calls := map[string]func(){
			"Trace":       func() { log.Trace("m", "error", err) },
			"Debug":       func() { log.Debug("m", "error", err) },
			"Info":        func() { log.Info("m", "error", err) },
			"Warn":        func() { log.Warn("m", "error", err) },
			"Error":       func() { log.Error("m", "error", err) },
			"Log":         func() { log.Log(hclog.Warn, "m", "error", err) },
			"With":        func() { log.With("error", err).Warn("m") },
			"of one with": func() { log.With("server", "x").Warn("m", "error", err) },
			"Named":       func() { log.Named("x").Warn("m", "error", err) },
			"ResetNamed":  func() { log.ResetNamed("x").Warn("m", "error", err) },
		}
		for name, call := range calls {
			out.Reset()
			call()
			if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"`+want+`"`) {
				t.Errorf("%s, %s: %q does not say %q in one line", format, name, got, want)
			}
		}
	}
}
