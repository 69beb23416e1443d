// Package tests looks at the real binary from outside: it builds mcp-bridge
// and a stdio server that misbehaves on command (fixtures/child), and asserts
// what a peer on either side can see. It needs nothing but Go.
package tests

import (
	"os"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// bridgeBin and childBin are the programs under test, built once.
var bridgeBin, childBin string

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "browse" {
		browse(os.Args[2], os.Args[3])
	}
	harness.AtOnce = 10
	bridgeBin, childBin = os.Getenv("TEST_BRIDGE"), os.Getenv("TEST_CHILD") // where the tests start themselves again
	harness.Main(m, harness.Bridge(&bridgeBin), harness.Program{Bin: &childBin, Package: "tests/fixtures/child"})
}
