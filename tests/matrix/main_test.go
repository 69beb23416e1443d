// Package matrix holds one conversation through the bridge for every pair of
// transports: a client of each transport that the bridge listens on, with a
// server of each that it connects to.
//
// Both ends are in this test: strict, small, and with nothing in common with
// the bridge's own code. So a script (script_test.go and its neighbours) can
// say what one end sends, byte for byte, and what the other must get, and
// nothing else. What the transport itself has rules on, the wires check
// (client_*_test.go and server_*_test.go): statuses, headers, event ids, one
// message a frame, how a session ends.
//
// MATRIX_BRIDGE names another program to be tested than the one that is built
// here; MATRIX_TABLE a file for the tables.
//
// In the rows called "floor" client and server talk without a bridge. They
// prove the test itself.
package matrix

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// patience bounds every wait. It is long because a loaded machine may stall;
// no test relies on it passing. MATRIX_PATIENCE names another, for who looks for
// a mistake.
var patience = 30 * time.Second

// atOnce is how many pairs run at a time. They mostly wait for one another,
// and for times that the protocol has in it.
const atOnce = "6"

// bridgeBin is the program under test, relayBin the stdio server; built once.
var bridgeBin, relayBin string

func TestMain(m *testing.M) {
	flag.Parse()
	if d, err := time.ParseDuration(os.Getenv("MATRIX_PATIENCE")); err == nil {
		patience = d
	}
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if !explicit {
		flag.Set("test.parallel", atOnce)
	}
	if file := os.Getenv("MATRIX_TABLE"); file != "" {
		os.Remove(file)
	}
	dir, err := os.MkdirTemp("", "matrix-")
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

// build makes the binaries, with the race detector in the bridge if these
// tests have it.
func build(dir string) error {
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	bridgeBin = filepath.Join(dir, "mcp-bridge"+exe)
	if other := os.Getenv("MATRIX_BRIDGE"); other != "" {
		bridgeBin = other
	}
	relayBin = filepath.Join(dir, "relay"+exe)
	bridge := []string{"build", "-o", bridgeBin}
	if raceEnabled {
		bridge = append(bridge, "-race")
	}
	builds := [][]string{{"build", "-o", relayBin, "../fixtures/relay"}}
	if os.Getenv("MATRIX_BRIDGE") == "" {
		builds = append(builds, append(bridge, "../../cmd/mcp-bridge"))
	}
	for _, args := range builds {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %v\n%s", args, err, out)
		}
	}
	return nil
}
