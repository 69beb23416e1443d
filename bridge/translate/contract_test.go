package translate_test

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
)

// What Wrap returns keeps the contract of every Conn.
func TestContract(t *testing.T) {
	bridgetest.TestConn(t, func(*testing.T) (a, b bridge.Conn, stop func()) {
		a, b = bridge.Pipe()
		return translate.Wrap(a, bridgetest.PassingFilter{}, nil), b, nil
	}, bridgetest.Options{InBubble: true})
}
