//go:build unix

package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// roleVar makes the test binary play the part of a child.
const roleVar = "SUPERVISOR_TEST_ROLE"

var roles = map[string]func(args []string){"log": roleLog}

func TestMain(m *testing.M) {
	if WatchdogMain() {
		return
	}
	if role := roles[os.Getenv(roleVar)]; role != nil {
		role(os.Args[1:])
		return
	}
	bridgetest.CheckLeaks(m)
}

// noPause keeps the race detector from sleeping for a second at exit.
const noPause = "GORACE=atexit_sleep_ms=0"

// self is a Spec that runs this binary in a role.
func self(role string, args ...string) Spec {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{Name: role, Path: exe, Args: args, Env: append(os.Environ(), roleVar+"="+role, noPause)}
}

func sh(script string, args ...string) Spec {
	return Spec{Name: "sh", Path: "/bin/sh", Args: append([]string{"-c", script, "sh"}, args...), Env: os.Environ()}
}

// roleLog logs to stdout what happens to the process, in one goroutine, and exits with
// status 7 at the event that its argument names.
func roleLog(args []string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	eof := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(eof) }()
	fmt.Println("ready")
	for {
		event := ""
		select {
		case <-eof:
			event, eof = "EOF", nil
		case <-term:
			event = "TERM"
		}
		fmt.Println(event)
		if event == args[0] {
			os.Exit(7)
		}
	}
}

func mustStart(t *testing.T, s Spec) *Process {
	t.Helper()
	p, err := Start(context.Background(), s)
	bridgetest.Must(t, err)
	t.Cleanup(func() { mustStop(t, p) })
	return p
}

func mustStop(t *testing.T, p *Process) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line := make([]byte, 0, 80)
	for one := make([]byte, 1); ; line = append(line, one...) {
		if _, err := io.ReadFull(r, one); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if one[0] == '\n' {
			return string(line)
		}
	}
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	bridgetest.Must(t, err)
	return string(b)
}

// A lifeline is a FIFO that processes hold open. Its end tells, without any
// waiting, that the last of them is dead.
type lifeline struct {
	path string
	f    *os.File
}

func newLifeline(t *testing.T) *lifeline {
	t.Helper()
	path := filepath.Join(t.TempDir(), "life")
	bridgetest.Must(t, syscall.Mkfifo(path, 0o600))
	// Open for reading does not wait for a writer when non-blocking.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	bridgetest.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return &lifeline{path: path, f: f}
}

// held reports whether any process holds the line now.
func (l *lifeline) held() bool {
	raw, err := l.f.SyscallConn()
	if err != nil {
		panic(err)
	}
	var readErr error
	_ = raw.Control(func(fd uintptr) { _, readErr = syscall.Read(int(fd), make([]byte, 1)) })
	return readErr == syscall.EAGAIN
}

// awaitEnd waits until nobody holds the line any more.
func (l *lifeline) awaitEnd(t *testing.T) {
	t.Helper()
	_ = l.f.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(l.f); err != nil {
		t.Errorf("still held after ten seconds: %v (%q)", err, b)
	}
}

// short are waits for children that are known to resist.
var short = StopWaits{Stdin: 300 * time.Millisecond, Term: 300 * time.Millisecond}

// bridgeProcess is a separate process that uses this package, in role "bridge".
type bridgeProcess struct {
	process *Process
	in      io.Writer
	out     *bufio.Reader
}

// say sends one command and returns the answer.
func (b *bridgeProcess) say(t *testing.T, words ...string) string {
	t.Helper()
	if _, err := io.WriteString(b.in, strings.Join(words, "\t")+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := b.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", words, err)
	}
	answer = strings.TrimSpace(answer)
	if rest, bad := strings.CutPrefix(answer, "error "); bad {
		t.Fatalf("%s: %s", words, rest)
	}
	return answer
}

func startBridge(t *testing.T) *bridgeProcess {
	t.Helper()
	p := mustStart(t, self("bridge"))
	return &bridgeProcess{p, p.Stdin(), bufio.NewReader(p.Stdout())}
}

func init() { roles["bridge"] = roleBridge }

// roleBridge obeys the commands on stdin, one a line, and answers each with a
// line.
func roleBridge([]string) {
	b := fakeBridge{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Split(in.Text(), "\t")
		answer, err := b.obey(words[0], words[1:])
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

// A fakeBridge is what a bridge does with this package, on command.
type fakeBridge struct {
	processes []*Process
	unreap    func()
}

func (b *fakeBridge) obey(command string, args []string) (answer string, err error) {
	switch command {
	case "subreap":
		b.unreap, err = Subreap()
	case "unreap":
		b.unreap()
	case "watchdog":
		StartWatchdog(func(failed error) { panic(failed) })
	case "await-watchdog":
		watchdog.writeLine("") // returns when it is started
	case "fork": // a script, as if we had not come to tell the watchdog of its process
		marker := newMarker()
		watchdog.beginStart(marker)
		cmd := exec.Command("sh", append([]string{"-c", args[0], "sh"}, args[1:]...)...)
		cmd.Env = withVar(os.Environ(), markerVar, marker)
		out, _ := cmd.StdoutPipe()
		if err = cmd.Start(); err != nil {
			return "", err
		}
		_, err = bufio.NewReader(out).ReadString('\n')
	case "start": // a script; answers with the first line of its output
		var p *Process
		spec := sh(args[0], args[1:]...)
		spec.Stop = short
		if p, err = Start(context.Background(), spec); err != nil {
			return "", err
		}
		b.processes = append(b.processes, p)
		answer, err = bufio.NewReader(p.Stdout()).ReadString('\n')
		return strings.TrimSpace(answer), err
	case "run": // a command line; its environment is ours
		spec := Spec{Path: args[0], Args: args[1:], Env: withVar(os.Environ(), roleVar, os.Getenv("RUN_ROLE")), Stop: short}
		p, err := Start(context.Background(), spec)
		if err != nil {
			return "", err
		}
		b.processes = append(b.processes, p)
		answer, err = bufio.NewReader(p.Stdout()).ReadString('\n')
		return strings.TrimSpace(answer), err
	case "stop":
		for _, p := range b.processes {
			err = errors.Join(err, p.Stop())
		}
	case "children":
		return fmt.Sprint(len(bridgetest.Children())), nil
	case "wait-children": // until there are as many as the argument says
		for fmt.Sprint(len(bridgetest.Children())) != args[0] {
			<-time.After(time.Millisecond)
		}
	default:
		err = fmt.Errorf("unknown command %q", command)
	}
	return "ok", err
}
