package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHeapIsPopulatedEarly: the packages whose initialisation takes most of a start come after the one that has the heap provided, as
// that would else gain nothing.
func TestHeapIsPopulatedEarly(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(bridgeBin, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const early = "init github.com/mcp-bridge/mcp-bridge/internal/startpages/populate "
	before, after, found := strings.Cut(string(out), early)
	if !found {
		t.Fatalf("it is not initialised: %s", out)
	}
	if n := strings.Count(before, "\n"); n > 40 {
		t.Errorf("%d packages are initialised before: %s", n, before)
	}
	if n := strings.Count(after, "\ninit "); n < 100 {
		t.Errorf("only %d packages are initialised after it", n)
	}
}
