//go:build unix

package tests

import (
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A trace whose output nobody reads ends with the first signal.
func TestTraceThatNobodyReads(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--json"}, {"-v"}} {
		p := start(t, nil, bridgeBin, "connect", "--", bridgeBin, "demo")
		p.send(initialize("2025-06-18"))
		p.line()
		pid := p.Cmd.Process.Pid
		running(t, pid)
		viewer := start(t, nil, append([]string{bridgeBin, "trace", strconv.Itoa(pid)}, args...)...)
		viewer.waitLog(regexp.MustCompile("looking at"))
		for id := range 20 { // more than a pipe and a socket hold
			p.send(`{"jsonrpc":"2.0","id":` + strconv.Itoa(id+1) + `,"method":"tools/call","params":{"name":"echo","arguments":{"message":"` + strings.Repeat("m", 100_000) + `"}}}`)
			p.line()
		}
		viewer.line()
		bridgetest.Must(t, viewer.Cmd.Process.Signal(syscall.SIGTERM))
		if status := viewer.wait(); status != 0 {
			t.Errorf("%s ends with status %d", args, status)
		}
	}
}
