package harness

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait; then the test fails. A TestMain may change it before it calls Main.
var Patience = 3 * time.Minute

// AtOnce is how many tests run at a time where the flag -parallel does not say it. A TestMain
// may change it before it calls Main.
var AtOnce = 6

// A Program is one that Main builds before the tests run.
type Program struct {
	Bin     *string // gets the path; if it is not empty, that program is used and nothing is built
	Package string  // the folder of the program, from the top of this module on
	Race    bool    // build it with the race detector if the tests have it
}

// Bridge returns the Program of mcp-bridge itself, whose path bin gets.
func Bridge(bin *string) Program {
	return Program{Bin: bin, Package: "cmd/mcp-bridge", Race: true}
}

// Main is what a TestMain does: it builds the programs, runs the tests, and searches what bridges have written for secrets. It ends
// the process, with a status that is not 0 if any of that has failed.
func Main(m *testing.M, programs ...Program) {
	flag.Parse()
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if !explicit {
		flag.Set("test.parallel", fmt.Sprint(AtOnce))
	}
	defaultHangup()
	dir, err := os.MkdirTemp("", "mcp-bridge-tests-")
	if err == nil {
		err = runtimeDir(dir)
	}
	if err == nil {
		err = build(dir, programs)
	}
	if err == nil {
		keptIn = filepath.Join(dir, "written")
		err = os.Mkdir(keptIn, 0o700)
	}
	code := 1
	if err == nil {
		code = m.Run()
		for _, fault := range search() {
			fmt.Fprintln(os.Stderr, fault)
			code = max(code, 1)
		}
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// runtimeDir gives bridges a folder for their control sockets, so that none of those that are
// killed stays, and one for credentials.
func runtimeDir(dir string) error {
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	dir = filepath.Join(dir, "run")
	os.Setenv("XDG_RUNTIME_DIR", dir)
	return os.Mkdir(dir, 0o700)
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

// build builds the programs into dir, but for those that have a path already.
func build(dir string, programs []Program) error {
	for _, p := range programs {
		if *p.Bin != "" {
			continue
		}
		bin := filepath.Join(dir, filepath.Base(p.Package))
		if runtime.GOOS == "windows" {
			bin += ".exe"
		}
		args := []string{"build", "-o", bin}
		if p.Race && RaceEnabled {
			args = append(args, "-race")
		}
		args = append(args, module+p.Package)
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		*p.Bin = bin
	}
	return nil
}

// module is the path of this module, before the folder of a program.
const module = "github.com/mcp-bridge/mcp-bridge/"
