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
	self, err := os.Executable()
	bridgetest.Must(t, err)
	info, err := os.Stat(self)
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
	limit := int(info.Size()>>10) / 8
	kib := bridgetest.FileRSS(t, watchdog.Process.Pid)
	for begin := time.Now(); kib > limit && time.Since(begin) < 10*time.Second; kib = bridgetest.FileRSS(t, watchdog.Process.Pid) {
		<-time.After(time.Millisecond)
	}
	_ = lines.Close()
	bridgetest.Must(t, errors.Join(writeErr, watchdog.Wait()))
	t.Logf("%d KiB of files are in the memory of the watchdog; its executable has %d", kib, info.Size()>>10)
	if kib > limit {
		t.Error("this is too much")
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
