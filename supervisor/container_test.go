//go:build unix

package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func init() { roles["engine"] = roleEngine }

const fakeID = "0123456789abcdef"

// roleEngine is the client of an engine that has one container. It writes its arguments
// into $LOG. The last argument of "run" says what SIGTERM does.
func roleEngine(args []string) {
	log, err := os.OpenFile(os.Getenv("LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(log, strings.Join(args, " "))
	switch {
	case slices.Contains(args, "kill") && os.Getenv("ENGINE") == "gone":
		fmt.Fprintln(os.Stderr, "Error: No such container: "+fakeID)
		os.Exit(1)
	case !slices.Contains(args, "run"):
		return
	}
	if i := slices.Index(args, "--cidfile"); i > 0 {
		f, err := os.OpenFile(args[i+1], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			os.Exit(int(clientFailedStatus))
		}
		io.WriteString(f, fakeID+"\n")
		f.Close()
	}
	mode := args[len(args)-1]
	if mode == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	switch mode {
	case "polite":
	case "failed":
		os.Exit(int(clientFailedStatus))
	default:
		<-time.After(time.Hour)
	}
}

// A fakeEngine is a Spec of a "docker" that is roleEngine.
type fakeEngine struct {
	Spec
	log  string
	temp string
	told []string
}

func newEngine(t *testing.T, env []string, args ...string) *fakeEngine {
	t.Helper()
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	dir := t.TempDir()
	docker := filepath.Join(dir, "docker")
	bridgetest.Must(t, os.Symlink(exe, docker))
	e := &fakeEngine{log: filepath.Join(dir, "log"), temp: filepath.Join(dir, "tmp")}
	bridgetest.Must(t, os.Mkdir(e.temp, 0o700))
	t.Setenv("TMPDIR", e.temp)
	e.Spec = Spec{
		Path: docker, Args: args, Stop: short, Env: append(append(os.Environ(), roleVar+"=engine", noPause, "LOG="+e.log), env...),
		OnContainer: func(id string, err error) { e.told = append(e.told, fmt.Sprint(id, " ", err)) },
	}
	return e
}

// calls returns what the engine was called with after "run".
func (e *fakeEngine) calls(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(e.log)
	bridgetest.Must(t, err)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	return lines[1:]
}

// If the client ends without saying how its container ended, the same engine kills the
// container, and removes it if --rm was given. If the client has said how the container
// ended, the container is left alone. No file is left in any case.
func TestContainerIsKilled(t *testing.T) {
	kill, remove, wait := "--context x kill --signal KILL "+fakeID, "--context x rm -f "+fakeID, "--context x wait "+fakeID
	for name, c := range map[string]struct {
		args string
		env  []string
		want []string
	}{
		"stubborn":           {"run -i --rm IMAGE stubborn", nil, []string{kill, remove}},
		"kept":               {"run -i IMAGE stubborn", nil, []string{kill, wait}},
		"dies by SIGTERM":    {"run -i --rm IMAGE dies", nil, []string{kill, remove}},
		"the engine is lost": {"run -i --rm IMAGE failed", nil, []string{kill, remove}},
		"gone already":       {"run -i --rm IMAGE stubborn", []string{"ENGINE=gone"}, []string{kill}},
		"container run":      {"container run -i --rm IMAGE stubborn", nil, []string{kill, remove}},
		"ends":               {"run -i --rm IMAGE polite", nil, []string{}},
		"another's file":     {"run --cidfile FILE IMAGE stubborn", nil, []string{}},
		"a file of its own":  {"run --cidfile NEW --rm IMAGE stubborn", nil, []string{kill, remove}},
		"detached":           {"run -d --rm IMAGE stubborn", nil, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, c.env)
			file := filepath.Join(filepath.Dir(e.log), "cid")
			bridgetest.Must(t, os.WriteFile(file, []byte(fakeID), 0o600))
			e.Args = strings.Fields("--context x " + strings.NewReplacer("FILE", file, "NEW", file+".new").Replace(c.args))
			if strings.HasSuffix(c.args, "stubborn") {
				e.Stop = StopWaits{Stdin: -1, Term: -1}
			}
			for range 2 { // each start has a file of its own
				p := mustStart(t, e.Spec)
				_, _ = io.ReadFull(p.Stdout(), make([]byte, len("ready\n")))
				mustStop(t, p)
				if got := e.calls(t); !slices.Equal(got, c.want) {
					t.Errorf("the engine was called with %q, want %q", got, c.want)
				}
				if told := len(e.told) == 1 && e.told[0] == fakeID+" <nil>"; told != (len(c.want) > 0) {
					t.Errorf("OnContainer was told %q", e.told)
				}
				if left, err := os.ReadDir(e.temp); err != nil || len(left) > 0 {
					t.Errorf("left in the temporary directory: %v %v", left, err)
				}
				e.told = nil
				os.Remove(e.log)
				os.Remove(file + ".new")
			}
		})
	}
}

// If the engine cannot end the container, the error of Stop names the engine.
func TestContainerCannotBeKilled(t *testing.T) {
	e := newEngine(t, nil, strings.Fields("run -i --rm IMAGE stubborn")...)
	p, err := Start(t.Context(), e.Spec)
	bridgetest.Must(t, err)
	readLine(t, p.Stdout())
	bridgetest.Must(t, os.Remove(e.Path))
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "container") || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stop: %v", err)
	}
	if len(e.told) != 1 || !strings.Contains(e.told[0], "may still run") {
		t.Errorf("OnContainer was told %q", e.told)
	}
}

// If the container's id cannot be found out, OnContainer is called, and the container runs.
func TestContainerWithoutTemporaryDirectory(t *testing.T) {
	e := newEngine(t, nil, strings.Fields("run -i --rm IMAGE polite")...)
	bridgetest.Must(t, os.Remove(e.temp))
	p := mustStart(t, e.Spec)
	readLine(t, p.Stdout())
	mustStop(t, p)
	if len(e.told) != 1 || !strings.HasPrefix(e.told[0], " ") {
		t.Errorf("OnContainer was told %q", e.told)
	}
}
