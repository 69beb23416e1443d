package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// The watchdog lasts as long as the bridge, and only waits. It keeps little in memory, and does not even initialise what the bridge needs.
func TestWatchdogNeedsLittle(t *testing.T) {
	// With all that a start needs there are about 7,000 KiB. What is left of them is 1,300, and up to 2,900 with the race detector on a
	// busy machine.
	const limit = 5 << 10
	self, err := os.Executable()
	bridgetest.Must(t, err)
	var initialised bytes.Buffer
	watchdog := exec.Command(self)
	watchdog.Env = []string{"MCP_BRIDGE_WATCHDOG=1", "GODEBUG=inittrace=1"}
	watchdog.Stderr = &initialised
	lines, err := watchdog.StdinPipe()
	bridgetest.Must(t, err)
	bridgetest.Must(t, watchdog.Start())
	// No pipe holds a megabyte: once it is written, the watchdog has begun to read.
	_, writeErr := lines.Write(bytes.Repeat([]byte("\n"), 1<<20))
	kib := bridgetest.ExecutableRSS(t, watchdog.Process.Pid)
	for begin := time.Now(); kib > limit && time.Since(begin) < 10*time.Second; kib = bridgetest.ExecutableRSS(t, watchdog.Process.Pid) {
		<-time.After(time.Millisecond)
	}
	_ = lines.Close()
	bridgetest.Must(t, errors.Join(writeErr, watchdog.Wait()))
	if kib > limit {
		t.Errorf("%d KiB of the executable are in the memory of the watchdog", kib)
	}
	for _, name := range []string{"encoding/json", "net/http", "prometheus", "main"} {
		if regexp.MustCompile(`(?m)^init (\S+/)?` + name + " ").Match(initialised.Bytes()) {
			t.Errorf("the watchdog has initialised package %s:\n%s", name, &initialised)
		}
	}
	if !bytes.Contains(initialised.Bytes(), []byte("init os ")) {
		t.Errorf("the runtime does not say what was initialised: %q", &initialised)
	}
}
