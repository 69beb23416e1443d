//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"

// pipeOf returns both ends of a pipe that has text in it.
func pipeOf(t *testing.T, text string) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	bridgetest.Must(t, err)
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	_, err = write.WriteString(text)
	bridgetest.Must(t, err)
	return read, write
}

// The error that ends connect quotes the server's stderr without secrets, wherever it is written.
func TestReasonWithoutSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, flag := range []string{"--debug", "--log-format=json", "--log-file=" + file} {
		stdin, _ := pipeOf(t, initialize)
		out, err := os.Create(os.DevNull) // the client is told the server's own words
		bridgetest.Must(t, err)
		defer out.Close()
		errs, err := os.Create(filepath.Join(t.TempDir(), "errs"))
		bridgetest.Must(t, err)
		defer errs.Close()
		status := run(t.Context(), []string{"connect", flag, "-e", "API_TOKEN=hush-4711", "--", "sh", "-c", `echo "cannot use $API_TOKEN" >&2; exit 3`},
			environment{stdin: stdin, stdout: out, stderr: errs, lookup: os.LookupEnv})
		said, err := os.ReadFile(errs.Name())
		bridgetest.Must(t, err)
		log, _ := os.ReadFile(file)
		if all := string(said) + string(log); status != exitFail || !strings.Contains(all, "last stderr: cannot use [redacted]") || strings.Contains(all, "hush") {
			t.Errorf("%s: status %d, %s", flag, status, all)
		}
	}
}

// Nor does the error with which replay ends have secrets in it.
func TestReplayReasonWithoutSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recording")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"v":1,"seq":1,"ts":"2026-01-02T15:04:05Z","ses":"s1","hop":"down","dir":"c2s","kind":"request","id":1,"method":"tools/list","msg":{"jsonrpc":"2.0","id":1,"method":"tools/list"}}
{"v":1,"seq":2,"ts":"2026-01-02T15:04:05Z","ses":"s1","hop":"down","dir":"s2c","kind":"response","id":1,"method":"tools/list","msg":{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}}
`), 0o600))
	status, _, said := try(t, "replay", file, "-e", "API_TOKEN=hush-4711", "--", "sh", "-c", `echo "cannot use $API_TOKEN" >&2; exit 3`)
	if status != exitUsage || !strings.Contains(said, "last stderr: cannot use [redacted]") || strings.Contains(said, "hush") {
		t.Errorf("status %d, %s", status, said)
	}
}

// Doctor hides the variables of an --env-file that is a pipe, which can be read once, and gives them to the server each time.
func TestDoctorVariablesOfPipe(t *testing.T) {
	file, write := pipeOf(t, "SETTING=hush-4711\n")
	_ = write.Close()
	_, out, _ := try(t, "doctor", "--env-file", fmt.Sprintf("/dev/fd/%d", file.Fd()), "--", "sh", "-c", `echo "cannot use $SETTING" >&2; exit 1`)
	if strings.Contains(out, "hush") || !strings.Contains(out, "cannot use (hidden)") {
		t.Error(out)
	}
}

// Where the file of connect --config says how long answers are waited for at the end of the input, the flag's time does not count.
func TestDrainTimeoutOfFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	bridgetest.Must(t, os.WriteFile(file, []byte(`{"mcpServers":{"slow":{"command":"sh",
		"args":["-c","read line; sleep 0.3; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"serverInfo\":{\"name\":\"slow\",\"version\":\"1\"}}}'; cat"],
		"mcp-bridge":{"drainTimeout":"1m","grace":"0s"}}}}`), 0o600))
	stdin, client := pipeOf(t, initialize)
	_ = client.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	bridgetest.Must(t, err)
	defer out.Close()
	status := run(t.Context(), []string{"connect", "--drain-timeout", "1ms", "--config", file, "slow"}, environment{stdin: stdin, stdout: out, stderr: os.Stderr, lookup: os.LookupEnv})
	said, err := os.ReadFile(out.Name())
	bridgetest.Must(t, err)
	if status != exitOK || !strings.Contains(string(said), `"result"`) {
		t.Errorf("status %d, %s", status, said)
	}
}
