package tests

import (
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/metrics"
)

// How large things may be. A package may be larger if ARCHITECTURE.md says why, in a sentence
// that begins "`NAME` has more than 3,000 lines".
const (
	maxFunction = 60
	maxFile     = 600
	maxFields   = 25
	maxPackage  = 3000
)

// TestSizes: what is larger than a reader can take in at a time is taken apart.
// go run ./tests/metrics prints the sizes of all.
func TestSizes(t *testing.T) {
	t.Parallel()
	packages, err := metrics.Walk("..")
	bridgetest.Must(t, err)
	text, err := os.ReadFile("../ARCHITECTURE.md")
	bridgetest.Must(t, err)
	check := func(what string, s metrics.Size, most int) {
		if s.N > most {
			t.Errorf("%s has %d %s, and may have %d", s.Name, s.N, what, most)
		}
	}
	for _, p := range packages {
		for _, s := range p.Functions {
			check("lines", s, maxFunction)
		}
		for _, s := range p.Files {
			check("lines", s, maxFile)
		}
		for _, s := range p.Structs {
			check("fields", s, maxFields)
		}
		if !strings.Contains(string(text), "`"+p.Dir+"` has more than 3,000 lines") {
			check("lines without a reason in ARCHITECTURE.md", metrics.Size{Name: p.Dir, N: p.Lines}, maxPackage)
		}
	}
}
