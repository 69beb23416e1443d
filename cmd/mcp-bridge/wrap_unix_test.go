//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A client's file gets the link to this program that $PATH has: it is there after an upgrade, too. Another program of that name is none.
func TestLastingPath(t *testing.T) {
	self, err := os.Executable()
	bridgetest.Must(t, err)
	linked, other := t.TempDir(), t.TempDir()
	link := filepath.Join(linked, filepath.Base(self))
	bridgetest.Must(t, os.Symlink(self, link))
	bridgetest.Must(t, os.WriteFile(filepath.Join(other, filepath.Base(self)), []byte("#!/bin/sh\n"), 0o700))
	for path, want := range map[string]string{linked: link, other: self, t.TempDir(): self} {
		t.Setenv("PATH", path)
		if got, err := stablePath(); got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}
