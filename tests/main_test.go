// Package tests looks at the real binary from outside: it builds mcp-bridge
// and a stdio server that misbehaves on command (fixtures/child), and asserts
// what a peer on either side can see. It needs nothing but Go.
package tests

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// bridgeBin and childBin are the programs under test, built once.
var bridgeBin, childBin string

func TestMain(m *testing.M) {
	harness.AtOnce = 10
	harness.Main(m, harness.Bridge(&bridgeBin), harness.Program{Bin: &childBin, Package: "tests/fixtures/child"})
}
