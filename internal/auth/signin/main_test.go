package signin

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }
