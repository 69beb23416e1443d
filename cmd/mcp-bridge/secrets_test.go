package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// A source that changes for ever has its newest values hidden, all of those that it has at once, and no more than the last 16 sets. It
// takes nothing from other sources, and to be read again changes nothing.
func TestSecretsAreBounded(t *testing.T) {
	var observer observe.Observer
	traced, stop, err := new(tracingFlags).start(&observer, hclog.NewNullLogger())
	bridgetest.Must(t, err)
	defer stop()
	traced.addSecrets("variable A", []string{"constant-value"})
	set := func(i int) []string {
		return []string{fmt.Sprintf("ann-token-%04d", i), fmt.Sprintf("bob-token-%04d", i)}
	}
	const last = 1000
	for i := range last + 1 {
		traced.addSecrets("tokens", set(i))
		reversed := set(i)
		slices.Reverse(reversed)
		traced.addSecrets("tokens", reversed)
		traced.addSecrets("tokens", nil) // the file is gone for a moment
	}
	hidden := 0
	for i := range last + 1 {
		for _, v := range set(i) {
			if traced.redact("it was "+v) == "it was "+v {
				continue
			}
			if hidden++; i <= last-maxKeptSets {
				t.Errorf("%s is hidden", v)
			}
		}
	}
	if hidden != 2*maxKeptSets {
		t.Errorf("%d values are hidden, want %d", hidden, 2*maxKeptSets)
	}
	traced.addSecrets("tokens", set(last-1)) // what comes back is not there twice
	if n := len(traced.secretValues["tokens"]); n != maxKeptSets {
		t.Errorf("%d sets are kept", n)
	}
	if text := "constant-value"; traced.redact(text) == text {
		t.Error("the value of another source is not hidden any more")
	}
}
