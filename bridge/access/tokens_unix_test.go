//go:build unix

package access

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestTokensFromPipe: a shell's <(...) is read once, and Reload does not wait
// for more.
func TestTokensFromPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe")
	bridgetest.Must(t, syscall.Mkfifo(file, 0o600))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := os.WriteFile(file, []byte("alice "+tokenA), 0); err != nil {
			t.Error(err)
		}
	})
	tokens, err := LoadTokens(file)
	wg.Wait()
	bridgetest.Must(t, err)
	if err := tokens.Reload(); err != nil || nameOf(tokens.lookup(tokenA)) != "alice" {
		t.Errorf("Reload: %v, and the name is %q", err, nameOf(tokens.lookup(tokenA)))
	}
	// Some shells remove it once it was read.
	bridgetest.Must(t, os.Remove(file))
	if err := tokens.Reload(); err != nil || tokens.IsFileGoneOrEmpty() || nameOf(tokens.lookup(tokenA)) != "alice" {
		t.Errorf("Reload of a pipe that is gone: %v, and the name is %q", err, nameOf(tokens.lookup(tokenA)))
	}
}
