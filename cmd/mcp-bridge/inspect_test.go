package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// An address that other machines can reach needs TLS and tokens.
func TestInspectRefusesToBePublic(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	bridgetest.Must(t, os.WriteFile(tokens, []byte("act 0123456789abcdef\n"), 0o600))
	for _, more := range [][]string{nil, {"--inspect-token-file", tokens}} {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--inspect=0.0.0.0:0", "--demo"}, more...)
		if status, _, errs := try(t, args...); status != exitUsage || !strings.Contains(errs, "needs TLS") {
			t.Errorf("%q: status %d: %s", args, status, errs)
		}
	}
	if status, _, errs := try(t, "serve", "--inspect-token-file", tokens, "--demo"); status != exitUsage || !strings.Contains(errs, "needs --inspect") {
		t.Errorf("status %d: %s", status, errs)
	}
}
