package migrate

import (
	"slices"
	"strings"
	"testing"
)

// The tables say the same of a flag that stands in several: the advice for it alone names the flags that a line gets, and what
// is left out of lines for no reason of its own is said to be left out.
func TestTables(t *testing.T) {
	for _, f := range peerFlags {
		name := normalizedName(f.name)
		kept := equivalentFlags[name]
		if limit, ok := timeFlags[name]; ok {
			kept = limit.equivalent
		}
		for _, ours := range []string{kept.serve, kept.connect} {
			for _, word := range strings.Fields(ours) {
				if !strings.Contains(f.advice, word) {
					t.Errorf("--%s becomes %q in a line, and the advice is %q", f.name, ours, f.advice)
				}
			}
		}
		if kept == (equivalent{}) && strings.HasPrefix(f.advice, "write --") && !slices.Contains(needValues, f.name) {
			t.Errorf("--%s has the advice %q, and is left out of lines", f.name, f.advice)
		}
	}
	for name := range equivalentFlags {
		if _, twice := timeFlags[name]; twice {
			t.Errorf("%q is a flag with a time, and one without", name)
		}
	}
	for _, name := range flagsWithoutValue {
		if _, isTime := timeFlags[name]; isTime {
			t.Errorf("%q has a time as its value, and no value", name)
		}
	}
}

// needValues are the flags whose values no line can repeat, or which supergateway's lines translate by themselves.
var needValues = []string{
	"apiKey", "client-secret", "static-oauth-client-info", "static-oauth-client-metadata", // secret
	"headers", "oauth2Bearer", "ssl", "tool-name", "tool-arg",
}
