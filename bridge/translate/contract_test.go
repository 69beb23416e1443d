package translate_test

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
)

// Translate keeps the contract on all the ways that messages may take through it.
func TestTranslateContract(t *testing.T) {
	for name, make := range map[string]func(server bridge.PullConn) bridge.PullConn{
		"read": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(translate.Wrap(bridge.Push(c), passing{}, nil))
		},
		"fed": func(c bridge.PullConn) bridge.PullConn {
			return newFed(bridge.Pull(translate.Wrap(bridge.Push(c), passing{}, nil)))
		},
		"polled": func(c bridge.PullConn) bridge.PullConn {
			return bridge.Pull(translate.Wrap(bridge.Push(newPolled(c)), passing{}, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bridgetest.TestPull(t, func(*testing.T) (a, b bridge.PullConn, stop func()) {
				a, b = bridge.PullPipe()
				return make(a), b, nil
			}, bridgetest.Options{})
		})
	}
}
