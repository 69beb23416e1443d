package tests

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestScript runs the scripts in testdata/script: what the command line does, as a user sees it.
// Beside the commands of testscript they have these two, and in their PATH mcp-bridge
// and child, the fixture:
//
//	exits STATUS PROGRAM [ARG...]   runs a program to its end, which must have that status
//	listens PROGRAM [ARG...]        runs one until the script ends, and waits until it listens:
//	                                then $URL is its endpoint, and $ADDR where it listens
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			path := env.Getenv("PATH")
			for _, bin := range []string{childBin, bridgeBin} {
				path = filepath.Dir(bin) + string(os.PathListSeparator) + path
			}
			env.Setenv("PATH", path)
			env.Values["t"] = env.T()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   scriptExits,
			"listens": scriptListens,
		},
		RequireUniqueNames: true,
	})
}

func scriptExits(ts *testscript.TestScript, not bool, args []string) {
	if not || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	command := args[1:]
	if len(command) > 1 && command[1] == "serve" && runtime.GOOS != "windows" {
		// Else its stdin is a pipe that testscript closes at once: serve takes that for the end where it sees it before the mistake.
		command = append([]string{"sh", "-c", `exec "$@" </dev/null`, "sh"}, command...)
	}
	err = ts.Exec(command[0], command[1:]...)
	status := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
}

func scriptListens(ts *testscript.TestScript, not bool, args []string) {
	if not || len(args) == 0 {
		ts.Fatalf("usage: listens PROGRAM [ARG...]")
	}
	if args[0] == "mcp-bridge" {
		args[0] = bridgeBin
	}
	t := ts.Value("t").(testing.TB)
	p := harness.Start(t, harness.Options{Env: []string{"PATH=" + ts.Getenv("PATH")}, Dir: ts.MkAbs("."), NullStdio: true}, args...)
	at, err := url.Parse(p.WaitLog(t, listening)[1])
	ts.Check(err)
	ts.Setenv("URL", at.String())
	ts.Setenv("ADDR", at.Host)
}
