package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check-config reports every command that is not there with its line, and whatever else
// is wrong with the file in the same run.
func TestCheckConfigReportsAllWithLines(t *testing.T) {
	missing := "{\"mcpServers\": {\n" +
		"\"a\": {\"command\": \"this-command-does-not-exist\"},\n" +
		"\"b\": {\"command\": \"nor-does-this-one\"},\n" +
		"\"c\": {\"command\": \"not-looked-for\", \"disabled\": true}"
	file := filepath.Join(t.TempDir(), "servers.json")
	for _, c := range []struct {
		text   string
		status int
		lines  []string
	}{
		{missing + "}}", exitFail, []string{":2:", ":3:"}},
		{missing + ",\n\"d\": {\"command\": \"ls\", \"args\": 5}}}", exitUsage, []string{":2:", ":3:", ":5:"}},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs := try(t, "check-config", file)
		if status != c.status || out != "" {
			t.Errorf("status %d, want %d; stdout %q", status, c.status, out)
		}
		for _, line := range c.lines {
			if !strings.Contains(errs, file+line) {
				t.Errorf("nothing about line %s in %q", line, errs)
			}
		}
		if strings.Contains(errs, "not-looked-for") {
			t.Errorf("a disabled server was looked at: %q", errs)
		}
	}
}
