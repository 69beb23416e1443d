package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const recorded = "../../internal/traceview/testdata/lost.jsonl"

func TestTraceFile(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		want   string // in stdout; "!": in stderr
	}{
		{recorded, exitOK, "tools/call read #1 ok 19ms"},
		{recorded + " --lost", exitFail, "lost: passed on to the server, which has not answered within 2.9s"},
		{recorded + " --lost id:4", exitFail, "neither passed on to the server nor answered"},
		{recorded + " --lost id:7", exitOK, "no message was lost"},
		{recorded + " --lost --json id:3", exitFail, `"where":"answer"`},
		{recorded + " -v id:7", exitOK, `{"code":-32603,"message":"no"}`},
		{recorded + " --json id:7 kind:request", exitOK, `{"v":1,"seq":26,`},
		{recorded + " --http", exitOK, "POST /mcp?x=1 200 22ms"},
		{recorded + " --export html ses:q2", exitOK, "<mark>77</mark>"},
		{recorded + " slow:soon", exitUsage, "!write a time with its unit"},
		{recorded + " --export pdf", exitUsage, "!use har, otlp, html"},
		{"nowhere/file.jsonl", exitUsage, "!no such file"},
		{"run_test.go", exitUsage, "!no line of it is a record"},
	} {
		status, out, errs := try(t, append([]string{"trace"}, strings.Fields(c.args)...)...)
		text, want := out, c.want
		if rest, is := strings.CutPrefix(want, "!"); is {
			text, want = errs, rest
		}
		if status != c.status || !strings.Contains(text, want) {
			t.Errorf("trace %s: status %d, want %d and %q\nstdout: %s\nstderr: %s", c.args, status, c.status, want, out, errs)
		}
	}
}

// A file that is still written, or was cut, shows what it has.
func TestTraceOfACutFile(t *testing.T) {
	text, err := os.ReadFile(recorded)
	bridgetest.Must(t, err)
	cut := filepath.Join(t.TempDir(), "cut.jsonl")
	bridgetest.Must(t, os.WriteFile(cut, text[:len(text)-10], 0o600))
	status, out, errs := try(t, "trace", cut)
	if status != exitOK || !strings.Contains(out, "s3") || !strings.Contains(errs, "the file ends inside of it") {
		t.Errorf("status %d, stdout %s, stderr %s", status, out, errs)
	}
}
