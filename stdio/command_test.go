//go:build unix

package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// dial starts a child of the tests.
func dial(t *testing.T, name string, change ...func(*Command)) bridge.Conn {
	t.Helper()
	cmd := &Command{Spec: supervisor.Spec{Name: "demo", Path: os.Args[0], Env: childEnviron(name)}}
	for _, f := range change {
		f(cmd)
	}
	c, err := cmd.Dial(t.Context())
	bridgetest.Must(t, err)
	t.Cleanup(func() {
		if err := c.Close(nil); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func wantText(t *testing.T, c bridge.Conn, want string) {
	t.Helper()
	m, err := bridgetest.Recv(t.Context(), c)
	if err != nil || string(m.Bytes()) != want {
		t.Fatalf("Recv = %s, %v; want %s", short(m.Bytes()), err, short([]byte(want)))
	}
}

// Every byte survives the way to a child and back.
func TestChildFidelity(t *testing.T) {
	c := dial(t, "echo")
	texts := []string{
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"x","params":{"z":1.0,"a":1e400,"é":"\u00e9\/ \ud83d\ude00 👩‍👩‍👧 ` + "\u00a0\u2028" + `"}}`,
		`{ "id" : "1" , "jsonrpc" : "2.0" , "result" : [ ] }`,
		string(new(benchMessage(30 << 20)).Bytes()),
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, text := range texts {
			if err := c.Send(t.Context(), parse(t, text)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, text := range texts {
		wantText(t, c, text)
	}
	wg.Wait()
	if err := c.Close(nil); err != nil {
		t.Errorf("Close = %v", err)
	}
	if _, err := bridgetest.Recv(t.Context(), c); err != io.EOF {
		t.Errorf("Recv after Close = %v, want io.EOF", err)
	}
}

// ST4, ST2.
func TestChildBanner(t *testing.T) {
	var n noise
	c := dial(t, "banner", func(c *Command) { c.Options.OnNoise = n.hook })
	wantText(t, c, pong)
	bridgetest.Must(t, c.Send(t.Context(), parse(t, ping)))
	wantText(t, c, ping)
	if len(n.sizes) != 1 {
		t.Errorf("noise reported: %v", n.reasons)
	}
}

// ST6: a child that floods stderr is not held up by it.
func TestChildStderr(t *testing.T) {
	var lines atomic.Int64
	c := dial(t, "stderr", func(c *Command) { c.Spec.Stderr = func([]byte) { lines.Add(1) } })
	bridgetest.Must(t, c.Send(t.Context(), parse(t, ping)))
	wantText(t, c, ping)
	bridgetest.Must(t, c.Close(nil))
	if n := lines.Load(); n != 10<<10 {
		t.Errorf("%d lines of stderr, want %d", n, 10<<10)
	}
}

// ST7: stdin is closed first; only then comes SIGTERM.
func TestChildStop(t *testing.T) {
	var mu sync.Mutex
	var steps []string
	c := dial(t, "stubborn", func(c *Command) {
		c.Spec.Stop.Stdin = 2 * time.Second // in which the child sees the end, also on a busy machine
		c.Spec.Stderr = func(line []byte) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, string(line))
		}
	})
	wantText(t, c, note)
	if err := c.Close(nil); err != nil {
		t.Errorf("Close = %v", err)
	}
	if got := strings.Join(steps, " "); got != "EOF TERM" {
		t.Errorf("the child saw %q, want EOF, then TERM", got)
	}
}

// A child that dies says why, in one line that a client may be shown.
func TestChildCrash(t *testing.T) {
	c := dial(t, "crash")
	bridgetest.Must(t, c.Send(t.Context(), parse(t, ping)))
	for range 2 {
		_, err := bridgetest.Recv(t.Context(), c)
		var exit *ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("Recv = %v, want an *ExitError", err)
		}
		want := `server "demo" ended: exit status 3; last stderr: starting | [31mpanic:  out of luck [0m | at line 1`
		if err.Error() != want {
			t.Errorf("Recv = %q\nwant   %q", err, want)
		}
	}
	var err error
	for range 100 { // until the pipe notices
		if err = c.Send(t.Context(), parse(t, ping)); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), `server "demo"`) {
		t.Errorf("Send to a dead child = %v, want an error that names it", err)
	}
}

// An end that nobody asked for is an error even with exit status 0.
func TestChildEndsByItself(t *testing.T) {
	for name, want := range map[string]string{
		"echo":          `server "demo" ended: exit status 0`,
		"status":        `server "demo" ended: exit status 3`,
		"closes stdout": `server "demo" ended: closed its stdout`,
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, name)
			if name != "closes stdout" {
				c.(*childConn).process.Stdin().Close()
			}
			_, err := bridgetest.Recv(t.Context(), c)
			var exit *ExitError
			if !errors.As(err, &exit) || err.Error() != want {
				t.Errorf("Recv = %v, want %q", err, want)
			}
		})
	}
}

// Errors name a server without a name by the path that people may see: the one that is run may hold a secret.
func TestChildIsNamedByItsShownPath(t *testing.T) {
	c := dial(t, "status", func(c *Command) { c.Spec.Name, c.Spec.ShownPath = "", "${TOOLS}/server" })
	_ = c.(*childConn).process.Stdin().Close()
	if _, err := bridgetest.Recv(t.Context(), c); err == nil || err.Error() != `server "${TOOLS}/server" ended: exit status 3` {
		t.Errorf("Recv = %v", err)
	}
}

// ST9: nothing is written to a child that has closed its stdout, for it answers nothing more: what it does not get,
// another child may get.
func TestChildThatCannotAnswerGetsNothing(t *testing.T) {
	ended := make(chan error, 1)
	c := dial(t, "closes stdout", func(c *Command) { c.Spec.OnExit = func(err error, _ bool) { ended <- err } })
	if _, err := bridgetest.Recv(t.Context(), c); err == nil {
		t.Fatal("Recv has got something")
	}
	m, err := jsonrpc.Parse([]byte(pong))
	bridgetest.Must(t, err)
	if c.TrySend(m) {
		t.Error("TrySend has taken a message")
	}
	if err := c.Send(t.Context(), m); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Send = %v", err)
	}
	bridgetest.Must(t, c.Close(nil))
	if err := <-ended; err != nil {
		t.Errorf("the child has read something: %v", err)
	}
}

// A child that does not read holds up Send; nothing piles up here.
func TestChildDoesNotRead(t *testing.T) {
	c := dial(t, "deaf", func(c *Command) { c.Spec.Stop.Stdin = -1 })
	wantText(t, c, note)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	taken := make(chan int, 100_000)
	ended := make(chan error)
	go func() {
		m := benchMessage(10_000)
		for {
			if err := c.Send(ctx, m); err != nil {
				ended <- err
				return
			}
			taken <- len(m.Bytes())
		}
	}()
	total := 0
	for waiting := false; !waiting; {
		select {
		case n := <-taken:
			total += n
		case <-time.After(200 * time.Millisecond):
			waiting = true
		}
	}
	if total > 2<<20 {
		t.Errorf("%d bytes were taken for a child that reads nothing", total)
	}
	if err := c.Close(nil); err != nil {
		t.Errorf("Close = %v", err)
	}
	if err := <-ended; err == nil {
		t.Errorf("Send did not fail at Close")
	}
}

// A child that is blocked in a write hears of the end of its stdin all the
// same, without being terminated.
func TestChildBlockedInWrite(t *testing.T) {
	c := dial(t, "chatty", func(c *Command) { c.Spec.Stop.Stdin = time.Minute })
	wantText(t, c, note)
	began := time.Now()
	if err := c.Close(nil); err != nil {
		t.Errorf("Close = %v", err)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("Close took %v: the child had to be terminated", d)
	}
}

// The contract holds over a real child that sends everything back, so that
// one Conn is its own peer; here only what makes sense for it.
func TestChildClose(t *testing.T) {
	files := bridgetest.FDs()
	c := dial(t, "echo")
	received := make(chan error)
	go func() { _, err := bridgetest.Recv(t.Context(), c); received <- err }()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := c.Close(nil); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
	if err := <-received; err != io.EOF {
		t.Errorf("Recv = %v when the Conn was closed, want io.EOF", err)
	}
	wg.Wait()
	if err := c.Send(t.Context(), parse(t, ping)); err == nil {
		t.Errorf("Send after Close gave no error")
	}
	if left := bridgetest.Children(); len(left) != 0 {
		t.Errorf("children left after Close: %v", left)
	}
	if n := bridgetest.FDs(); n > files {
		t.Errorf("%d files open after Close, %d before", n, files)
	}
}

func TestDialFails(t *testing.T) {
	cmd := &Command{Spec: supervisor.Spec{Path: "/nonexistent/server"}}
	if c, err := cmd.Dial(t.Context()); !errors.Is(err, os.ErrNotExist) || c != nil {
		t.Errorf("Dial = %v, %v; want an error that is os.ErrNotExist", c, err)
	}
}

func TestExitErrorIsBounded(t *testing.T) {
	long := strings.Repeat("é", 400)
	e := &ExitError{Name: "x", Err: &exec.ExitError{}, Stderr: []string{"first", "", long, "\xff\x00" + long, "last"}}
	text := e.Error()
	if len(text) > maxStderrText+200 || strings.ContainsAny(text, "\x00\n") || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	if !strings.HasSuffix(text, " | last") || strings.Contains(text, "first") {
		t.Errorf("want the last lines, got %q", text)
	}
	m := jsonrpc.NewError(jsonrpc.IntID(1), jsonrpc.CodeInternalError, text, nil)
	if _, err := jsonrpc.Parse(m.Bytes()); err != nil {
		t.Errorf("does not fit into a message: %v", err)
	}
}
