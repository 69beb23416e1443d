//go:build unix

package wrap

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// Who changes the file of another user, with sudo, leaves it to that user, and what was there, too.
func TestChangeKeepsOwner(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	bridgetest.Must(t, os.WriteFile(file, []byte("old"), 0o600))
	bridgetest.Must(t, os.Chmod(file, 0o640))
	if err := os.Chown(file, 12345, 12346); err != nil {
		t.Skip("this user cannot give files away: ", err)
	}
	backup, err := EditFile(file, time.Now(), func([]byte) ([]byte, error) { return []byte("new"), nil })
	bridgetest.Must(t, err)
	for name, mode := range map[string]os.FileMode{file: 0o640, backup: 0o600} {
		info, err := os.Stat(name)
		bridgetest.Must(t, err)
		if of := info.Sys().(*syscall.Stat_t); of.Uid != 12345 || of.Gid != 12346 || info.Mode() != mode {
			t.Errorf("%s belongs to %d:%d and has the mode %v", name, of.Uid, of.Gid, info.Mode())
		}
	}
}
