package metrics

import (
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestWalk counts testdata/module, in which each kind of thing that is counted stands next
// to something that looks like it.
func TestWalk(t *testing.T) {
	packages, err := Walk("testdata/module")
	bridgetest.Must(t, err)
	if len(packages) != 2 || packages[0].Dir != "a" || packages[1].Dir != "b/internal/c" {
		t.Fatalf("Walk found %+v, want a and b/internal/c", packages)
	}
	a := packages[0]
	for _, c := range []struct {
		what       string
		have, want any
	}{
		{"lines", a.Lines, 46},
		{"files", len(a.Files), 2},
		{"largest file", Largest(a.Files), Size{"a/a.go", 43}},
		{"functions", len(a.Functions), 5},
		{"median function", Quantile(a.Functions, 0.5), 1},
		{"95th percentile", Quantile(a.Functions, 0.95), 8},
		{"longest function", Largest(a.Functions), Size{"a.Pair.get", 8}},
		{"most fields", Largest(a.Structs), Size{"a.local", 5}},
		{"most methods", Largest(a.Types), Size{"a.Pair", 3}},
		{"exported", a.Exported, 5}, // One, Three, Four, Pair, Pair.Set
		{"goroutines", a.Goroutines, 2},
		{"timers", a.Timers, 4},
	} {
		if c.have != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.have, c.want)
		}
	}
}

// TestWalkOfNone: what is missing, or is no Go, is an error and not a table of zeros.
func TestWalkOfNone(t *testing.T) {
	if _, err := Walk("testdata/none"); err == nil {
		t.Error("a folder that does not exist was walked through")
	}
}

func TestPrint(t *testing.T) {
	packages, err := Walk("testdata/module")
	bridgetest.Must(t, err)
	var out strings.Builder
	bridgetest.Must(t, Print(&out, packages))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 {
		t.Fatalf("the table has %d lines, want a heading, two packages and two totals:\n%s", len(lines), out.String())
	}
	for i, want := range []string{"package lines", "a 46 2 43 a.go 5 1 8", "b/internal/c 3 1 3 c.go", "total (2 packages) 49 3", "public (1 packages) 46 2"} {
		if have := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(have, want) {
			t.Errorf("line %d is %q, want %q...", i, have, want)
		}
	}
}
