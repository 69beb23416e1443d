package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// --log-file takes the log in the place of stderr, which has nothing but the reason of the end. What is in the file stays, and
// one that has become too large is put aside.
func TestLogFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for range 2 {
		status, _, errs := try(t, "connect", "--log-file", file, "--debug", "--", "this-command-does-not-exist")
		if status != exitFail || !strings.HasPrefix(errs, "mcp-bridge: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("status %d, stderr %q", status, errs)
		}
	}
	text, err := os.ReadFile(file)
	bridgetest.Must(t, err)
	if strings.Count(string(text), "[ERROR]") != 2 || !strings.Contains(string(text), "this-command-does-not-exist") {
		t.Errorf("the log: %s", text)
	}
	info, err := os.Stat(file)
	bridgetest.Must(t, err)
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	bridgetest.Must(t, os.Truncate(file, maxLogFile+1))
	try(t, "connect", "--log-file", file, "--", "this-command-does-not-exist")
	if old, err := os.Stat(file + ".1"); err != nil || old.Size() != maxLogFile+1 {
		t.Errorf("the large file: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 || info.Size() > 10_000 {
		t.Errorf("the new file: %v, %v", info, err)
	}
	if status, _, errs := try(t, "connect", "--log-file", filepath.Join(file, "x"), "--", "cat"); status != exitUsage || !strings.Contains(errs, "--log-file") {
		t.Errorf("a file that cannot be: status %d, %q", status, errs)
	}
}
