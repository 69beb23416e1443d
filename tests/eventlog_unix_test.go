//go:build unix

package tests

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// The level changes while the bridge runs.
func TestLevelSignal(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := s.open("2025-11-25")
	ask := func() { c.call(`{"jsonrpc":"2.0","id":2,"method":"ping"}`) }
	ask()
	s.proc.signal(syscall.SIGUSR1)
	s.proc.waitLog(regexp.MustCompile(`log level changed: level=debug`))
	ask()
	harness.WaitUntil(t, "the exchange to be told", func() bool { return strings.Contains(s.Log(), "exchange: server=child session=s1 id=2 method=ping") })
	s.proc.signal(syscall.SIGUSR1)
	s.proc.waitLog(regexp.MustCompile(`log level changed: level=info`))
	ask()
	s.proc.stop()
	if n := strings.Count(s.Log(), " exchange: "); n != 1 {
		t.Errorf("%d exchanges are told of, want 1", n)
	}
}
