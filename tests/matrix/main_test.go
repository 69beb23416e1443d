package matrix

import (
	"os"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// bridgeBin is the program under test, relayBin the stdio server; built once.
var bridgeBin, relayBin string

func TestMain(m *testing.M) {
	// MATRIX_PATIENCE names another patience, for who looks for a mistake.
	if d, err := time.ParseDuration(os.Getenv("MATRIX_PATIENCE")); err == nil {
		harness.Patience = d
	}
	if file := os.Getenv("MATRIX_TABLE"); file != "" {
		os.Remove(file)
	}
	bridgeBin = os.Getenv("MATRIX_BRIDGE")
	harness.AtOnce = 16 // rows mostly wait: for one another, and for times that the protocol has in it
	harness.Main(m, harness.Bridge(&bridgeBin), harness.Program{Bin: &relayBin, Package: "tests/fixtures/relay"})
}
