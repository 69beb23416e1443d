package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// exitGrace is how long a child that has closed its stdout may take to exit: after
// that Receive reports its end without an exit status.
const exitGrace = time.Second

// stuckReadAfter is how long a read of stdout may go on after it was interrupted. The kernel lets it go on longer if the child holds the lock of
// the pipe: while it moves bytes into it with splice(2), or writes memory that is not there yet. Then only the child's end helps.
const stuckReadAfter = 5 * time.Second

// Command is a bridge.Dialer that starts a child process and talks to it over
// its stdin and stdout. Each Dial starts one; Dial may be called concurrently.
type Command struct {
	// Spec says what to start, and how to stop it. Errors of the Conn name the server by
	// Spec.Name, or if that is empty by the whole Spec.ShownPath or Spec.Path.
	Spec supervisor.Spec

	// Options are those of the Conn; its Peer is Server, whatever they say.
	Options Options

	// OnStart is called by Dial with the process id of each child that was started;
	// nil: nobody is told.
	OnStart func(pid int)
}

// Dial starts the child. Receive on the Conn returns an *ExitError when the child
// ends without Close or closes its stdout, and io.EOF after Close. Close stops the
// child with supervisor.Process.Stop, and returns the error of that.
func (c *Command) Dial(ctx context.Context) (bridge.Conn, error) {
	p, err := supervisor.Start(ctx, c.Spec)
	if err != nil {
		return nil, err
	}
	if c.OnStart != nil {
		c.OnStart(p.PID())
	}
	opts := c.Options
	opts.Peer = Server
	child := &childConn{name: cmp.Or(c.Spec.Name, c.Spec.ShownPath, c.Spec.Path), process: p, stuckAfter: stuckReadAfter}
	child.stdout.r = p.Stdout().(deadlineReader)
	child.Conn = newConn(&child.stdout, p.Stdin(), child.stop, opts, false)
	return child, nil
}

// deadlineReader is what supervisor.Process.Stdout returns.
type deadlineReader interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// stdoutReader reads a child's stdout, and says whether it is reading.
type stdoutReader struct {
	r       deadlineReader
	reading atomic.Bool // a Read is in progress
}

// Read implements io.Reader.
func (s *stdoutReader) Read(p []byte) (int, error) {
	s.reading.Store(true)
	defer s.reading.Store(false)
	return s.r.Read(p)
}

// SetReadDeadline sets when a Read that waits gives up.
func (s *stdoutReader) SetReadDeadline(t time.Time) error { return s.r.SetReadDeadline(t) }

// childConn is the bridge.Conn to a child process, over its stdin and stdout. Close stops the process.
type childConn struct {
	*Conn
	name    string              // what errors call the server: Spec.Name, or if that is empty Spec.ShownPath or Spec.Path
	process *supervisor.Process // the child process
	stdout  stdoutReader        // its stdout
	exitErr error               // what Receive returns after the end of stdout; nil: that is not known yet. Only Receive uses it

	stuckAfter  time.Duration // the const stuckReadAfter; shorter in tests
	stdoutEnded atomic.Bool   // stdout is at its end: the child answers nothing more, so nothing more is written to it
}

// Receive implements bridge.Conn. It ends with an *ExitError when the child has ended, by itself or by Kill, or closed
// its stdout, and with io.EOF after Close. Where ctx ends and a read of stdout cannot be interrupted (stuckReadAfter), the process is stopped.
func (c *childConn) Receive(ctx context.Context, sink bridge.Sink) error {
	returned := make(chan struct{})
	defer close(returned)
	defer context.AfterFunc(ctx, func() { c.stopIfStuck(returned) })()
	return c.receive(ctx, sink, nil, c.explain)
}

// stopIfStuck stops the process if the read of stdout that was interrupted goes on for stuckAfter. It ends early when returned is closed. It
// waits in ten steps: if the bridge itself stands still for a time, only one step passes by that, and the read still has the others to return.
func (c *childConn) stopIfStuck(returned <-chan struct{}) {
	for range 10 {
		select {
		case <-returned:
			return
		case <-time.After(c.stuckAfter / 10):
		}
	}
	select {
	case <-returned: // both were ready
		return
	default:
	}
	if c.stdout.reading.Load() {
		_ = c.process.Stop() // Close returns its error
	}
}

// explain returns the error of Receive where reading stdout has ended with err: ctx's
// own, io.EOF after Close, the *ExitError after the end of stdout, and any other with
// the server's name.
func (c *childConn) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case errors.Is(err, io.ErrClosedPipe):
		return io.EOF // by Close
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("server %q: %w", c.name, err)
	}
	c.stdoutEnded.Store(true)
	if c.exitErr == nil {
		c.exitErr = c.findEndReason(ctx)
	}
	if c.exitErr == nil {
		return ctx.Err()
	}
	return c.exitErr
}

// Send implements bridge.Conn: it sends a message to the child. Its errors, but for ctx's, name the server. Once the
// child has closed its stdout, it writes nothing: a request that the child had got could not be sent to another one.
func (c *childConn) Send(ctx context.Context, m jsonrpc.Message) error {
	err := error(syscall.EPIPE)
	if !c.stdoutEnded.Load() {
		err = c.Conn.Send(ctx, m)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("server %q: %w", c.name, err)
	}
	return err
}

// TrySend implements bridge.Conn: it sends a message to the child if that takes it at once. Once the child has closed
// its stdout, it takes nothing.
func (c *childConn) TrySend(m jsonrpc.Message) bool {
	return !c.stdoutEnded.Load() && c.Conn.TrySend(m)
}

// Kill kills the child process without the gentler steps, and returns when it has
// ended. It does not close the Conn: Receive tells of the end.
func (c *childConn) Kill() error { return c.process.Kill() }

// errStdoutClosed is the Err of an ExitError for a child that has closed its stdout
// and has not exited within exitGrace.
var errStdoutClosed = errors.New("closed its stdout")

// findEndReason finds out why stdout is at its end. It waits for the process to exit,
// no longer than exitGrace, and returns an *ExitError; io.EOF if the Conn was closed;
// nil if ctx ends first.
func (c *childConn) findEndReason(ctx context.Context) error {
	grace := time.NewTimer(exitGrace)
	defer grace.Stop()
	e := &ExitError{Name: c.name}
	select {
	case <-c.process.Done():
		e.Err = c.process.ExitError()
	case <-grace.C:
		e.Err = errStdoutClosed
	case <-c.end.done:
		return io.EOF // by Close
	case <-ctx.Done():
		return nil
	}
	e.Stderr = c.process.StderrTail()
	return e
}

// stop is the closer of the Conn: it stops the process, and returns the error of that.
// It reads stdout meanwhile, and drops what comes: a child that is blocked in a write
// would not see that its stdin has ended.
func (c *childConn) stop() error {
	if !c.in.mu.TryLock() { // Receive has the lock, perhaps in a read that cannot be interrupted (stuckReadAfter)
		stuck := time.AfterFunc(c.stuckAfter, func() { _ = c.process.Stop() }) // the Stop below returns its error
		c.in.mu.Lock()
		stuck.Stop()
	}
	defer c.in.mu.Unlock() // Receive reads no more; what still comes from stdout is ours
	_ = c.stdout.SetReadDeadline(time.Time{})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, &c.stdout)
	}()
	err := c.process.Stop()
	<-drained
	return err
}

// ExitError is the error of Receive after a child has ended, or has closed its stdout,
// without Close: by itself, or because it was killed (Kill).
type ExitError struct {
	Name   string   // the name of the server, for the text
	Err    error    // how the process has ended (Process.ExitError), or that it has only closed its stdout; nil: exit status 0
	Stderr []string // the last lines that the child wrote to stderr, oldest first
}

// maxStderrText is how many bytes of the child's stderr the text of an ExitError
// quotes at most, without the marks between the lines.
const maxStderrText = 1000

// Error says in one line, of bounded length, that the server has ended, how, and what
// its last lines of stderr were. It may be shown to the client.
func (e *ExitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server %q ended: ", e.Name)
	if e.Err == nil {
		b.WriteString("exit status 0")
	} else {
		b.WriteString(e.Err.Error())
	}
	if text := joinLastLines(e.Stderr, maxStderrText); text != "" {
		b.WriteString("; last stderr: ")
		b.WriteString(text)
	}
	return b.String()
}

// Success reports whether the process ended with exit status 0: a server may
// end by itself when its work is done (mux.Mux asks that).
func (e *ExitError) Success() bool { return e.Err == nil }

// Unwrap returns Err, which may be nil.
func (e *ExitError) Unwrap() error { return e.Err }

// joinLastLines joins, with " | ", as many of the last lines as fit into max bytes
// (the " | " not counted), the first of these perhaps cut, with "..." at its end. Empty
// lines are left out, and what is not printable becomes a blank.
func joinLastLines(lines []string, max int) string {
	var kept []string
	for i := len(lines) - 1; i >= 0 && max > 0; i-- {
		line := strings.TrimSpace(strings.Map(blankUnprintable, strings.ToValidUTF8(lines[i], "\uFFFD")))
		if line == "" {
			continue
		}
		if len(line) > max {
			line = strings.ToValidUTF8(line[:max], "") + "..."
		}
		kept = append([]string{line}, kept...)
		max -= len(line)
	}
	return strings.Join(kept, " | ")
}

// blankUnprintable returns a blank for what a terminal may take for a command, or what changes the
// direction in which the text beside it is shown.
func blankUnprintable(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return ' '
	}
	return r
}
