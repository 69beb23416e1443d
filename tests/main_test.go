// Package tests looks at the real binary from outside: it builds mcp-bridge
// and a stdio server that misbehaves on command (fixtures/child), and asserts
// what a peer on either side can see. It needs nothing but Go.
package tests

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait. It is long because a loaded machine may stall;
// no test relies on it passing.
const patience = time.Minute

// bridgeBin and childBin are the programs under test, built once.
var bridgeBin, childBin string

func TestMain(m *testing.M) {
	defaultHangup()
	dir, err := os.MkdirTemp("", "mcp-bridge-tests-")
	if err == nil {
		err = build(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// defaultHangup sees to it that what the tests start takes SIGHUP as it does by
// default, also where these tests were started to ignore it, as by nohup: a signal
// that is caught here has its default in a program that is started, one that
// is ignored goes on being ignored.
func defaultHangup() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}

// build makes the binaries, with the race detector in the bridge if these
// tests have it.
func build(dir string) error {
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	bridgeBin = filepath.Join(dir, "mcp-bridge"+exe)
	childBin = filepath.Join(dir, "child"+exe)
	bridge := []string{"build", "-o", bridgeBin}
	if raceEnabled {
		bridge = append(bridge, "-race")
	}
	for _, args := range [][]string{
		append(bridge, "../cmd/mcp-bridge"),
		{"build", "-o", childBin, "./fixtures/child"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %v\n%s", args, err, out)
		}
	}
	return nil
}
