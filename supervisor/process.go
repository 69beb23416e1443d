package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A Spec says what to start. Only Path is required.
type Spec struct {
	// Name stands for the child in errors of this package; "" means the base name of Path.
	Name string

	// Path is the command. A name without a slash is looked up in the PATH of Env, or in our own PATH if Env has none.
	// The lookup never takes a file from the working directory. A relative path with a slash is relative to Dir.
	Path string
	// Args are the arguments after the command. No shell sees them.
	Args []string

	// Env is the complete environment of the child, see Environ. nil means an empty environment: the child inherits
	// nothing. On Linux the variable MCP_BRIDGE_PROCESS is added, because descendants are found by it.
	Env []string
	// Dir is the child's working directory; "" means ours.
	Dir string

	// ShownPath and ShownDir are what errors say in place of Path and Dir, which may hold
	// secrets. "" means that errors say Path and Dir. No error says Args.
	ShownPath, ShownDir string

	// PTY makes the child's stdout a terminal, for programs that buffer their output when stdout is a pipe. The terminal is raw:
	// bytes pass unchanged, and nothing is echoed. stdin and stderr stay pipes. Not available on Windows.
	PTY bool

	// Stop says how long Process.Stop waits after each of its steps. The zero value means defaults.
	Stop StopWaits

	// Stderr is called by one goroutine for every line of the child's stderr. line has no line end and at most
	// MaxStderrLine bytes, and is valid during the call only. While Stderr blocks, the child's stderr is not read, and
	// Stop waits. nil means that the lines are read and dropped.
	Stderr func(line []byte)

	// OnContainer is called when Stop or Kill has killed the container whose client the child was, with its id. err is
	// not nil if the container may still run. With an empty id and an error, Start, Stop and Kill call it if they cannot
	// find out the id of the container, so that nobody can kill the container. nil means no calls.
	OnContainer func(id string, err error)

	// OnStop is called by Stop and Kill before each step by which they end the child: "close stdin", "terminate" and
	// "kill". It is not called once the process has exited, although there may still be descendants to end. nil means no
	// calls.
	OnStop func(step string)

	// OnExit is called once, when the process has exited and its stderr was read to the end, or a short grace later.
	// Process.Done is closed after the call. err is what Process.ExitError returns then; asked says that Stop or Kill was
	// called before the exit. Both wait for the call, unless the process survives SIGKILL. nil means no call.
	OnExit func(err error, asked bool)
}

// name returns what errors call the child: Name, or else the base name of ShownPath or Path.
func (s *Spec) name() string {
	if s.Name != "" {
		return s.Name
	}
	return filepath.Base(s.displayName(s.Path))
}

// A Process is a child that was started. All methods may be called concurrently.
type Process struct {
	name        string                      // the child's name in errors
	stopWaits   StopWaits                   // Spec.Stop with its defaults; guarded by stopOnce
	child       *child                      // the system's part of the process
	container   *container                  // the container that the child is the client of; nil: none
	stdin       *os.File                    // our end of the child's stdin
	stdout      *childOutput                // our end of the child's stdout
	stderr      *childOutput                // our end of the child's stderr, which stderrLines reads
	stderrLines *stderrLines                // splits stderr into lines, and keeps the last ones
	onStop      func(step string)           // the OnStop of the Spec; nil: none
	onExit      func(err error, asked bool) // the OnExit of the Spec; nil: none

	exited    chan struct{}  // closed when the process has exited, reaped or not
	done      chan struct{}  // closed when the process has exited, stderr was read to its end or outputGrace is over, and onExit has returned
	exitErr   error          // what ExitError returns in the end; set before exited is closed
	wg        sync.WaitGroup // waits for the goroutines that read stderr, wait for the exit, and close stdin
	stopOnce  sync.Once      // runs Stop, or Kill, once
	stopErr   error          // the error that Stop and Kill return; set by stopOnce
	reapOnce  sync.Once      // reaps the process once
	stopAsked atomic.Bool    // Stop or Kill was called
	abandoned atomic.Bool    // Stop has given up, because the process has survived SIGKILL: the waiter goroutine reaps it
}

// Start starts s. ctx bounds the start only: the end of ctx does not end the process. The caller must call Stop in the end.
//
// An error names the command and says what to do. An error that wraps fs.ErrNotExist or fs.ErrPermission is about the command or
// its directory.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p, err := start(ctx, &s)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name(), err)
	}
	return p, nil
}

// start does the work of Start: it starts what s describes, with pipes or a terminal for its streams, and the goroutines
// of the Process. Its errors do not begin with the name of the child.
func start(ctx context.Context, s *Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := s.lookPath()
	if err != nil {
		return nil, err
	}
	std, err := openStdio(s.PTY)
	if err != nil {
		return nil, err
	}
	ctr, s := s.withContainer(path)
	c, err := startChild(ctx, path, s, std.childEnds)
	std.closeChildEnds()
	if err != nil {
		std.closeOurEnds()
		if ctr != nil {
			ctr.forget()
		}
		return nil, s.explainStart(err, path)
	}
	p := &Process{
		name:        s.name(),
		stopWaits:   s.Stop.withDefaults(),
		child:       c,
		container:   ctr,
		stdin:       std.stdin,
		stdout:      &childOutput{f: std.stdout},
		stderr:      &childOutput{f: std.stderr},
		stderrLines: &stderrLines{onLine: s.Stderr},
		onStop:      s.OnStop,
		onExit:      s.OnExit,
		exited:      make(chan struct{}),
		done:        make(chan struct{}),
	}
	stderrEnd := make(chan struct{})
	p.wg.Go(func() { p.stderrLines.copyFrom(p.stderr); close(stderrEnd) })
	p.wg.Go(func() { p.wait(stderrEnd) })
	return p, nil
}

// wait is the waiter goroutine: it waits for the process to exit, and then for stderrEnd, which is closed at the end
// of stderr, but no longer than outputGrace. It calls OnExit and closes exited and done.
func (p *Process) wait(stderrEnd <-chan struct{}) {
	p.exitErr = p.child.wait()
	asked := p.stopAsked.Load()
	close(p.exited)
	p.stdout.processExited()
	if p.abandoned.Load() {
		p.reap()
	}
	grace := time.NewTimer(outputGrace)
	defer grace.Stop()
	select {
	case <-stderrEnd:
	case <-grace.C:
	}
	if p.onExit != nil {
		p.onExit(p.exitErr, asked)
	}
	close(p.done)
}

// PID returns the process id, which is also the id of the process group.
func (p *Process) PID() int { return p.child.pid }

// Stdin returns our end of the child's stdin. It is an *os.File, which has write
// deadlines (not on Windows). Most programs end when it is closed; Stop closes it first.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout returns the child's stdout. Its Read returns io.EOF at the end of the output. If the process has exited and a descendant
// still holds the pipe open, the output ends once the descendant has written nothing for a short time. Read returns all that is in
// the pipe before io.EOF, however late it is called, also after Stop.
//
// The Reader has a method SetReadDeadline(time.Time) error like that of a file. The method works until Stop (not on Windows).
func (p *Process) Stdout() io.Reader { return p.stdout }

// Done is closed when the process has exited and its stderr was read to the end. If a descendant holds stderr open,
// Done is closed after a short grace. Descendants may still live: only Stop ends them.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitError says how the process has ended: nil for status 0, otherwise an error with a text such as "exit status 3"
// or "killed by signal SIGKILL". It returns nil until Done is closed.
func (p *Process) ExitError() error {
	select {
	case <-p.done:
		return p.exitErr
	default:
		return nil
	}
}

// StderrTail returns the last lines of the child's stderr, oldest first: at most ten lines, each cut at 512 bytes. Of
// a stack, as Node.js, Java, .NET and Go print it, there is one line at most: the message above it tells more. It is
// complete when Done is closed.
func (p *Process) StderrTail() []string { return p.stderrLines.lastLines() }

// stdio is the three streams of a child: its own ends and ours.
type stdio struct {
	childEnds [3]*os.File // the child's stdin, stdout and stderr
	// our ends of the child's streams
	stdin, stdout, stderr *os.File
}

// openStdio makes the streams of a child; with terminal, stdout is one. All ends are close-on-exec. (os/exec could
// make the pipes, but closes our ends when the process exits, while they are still being read.)
func openStdio(terminal bool) (*stdio, error) {
	s := &stdio{}
	if err := s.open(terminal); err != nil {
		s.closeChildEnds()
		s.closeOurEnds()
		return nil, err
	}
	return s, nil
}

// open makes the streams of a child; with terminal, stdout is one. After an error it leaves those streams open that it
// has made.
func (s *stdio) open(terminal bool) (err error) {
	if s.childEnds[0], s.stdin, err = os.Pipe(); err != nil {
		return err
	}
	if terminal {
		s.stdout, s.childEnds[1], err = openTerminal()
	} else {
		s.stdout, s.childEnds[1], err = os.Pipe()
	}
	if err != nil {
		return err
	}
	s.stderr, s.childEnds[2], err = os.Pipe()
	return err
}

// closeChildEnds closes the child's ends, once the child has them or cannot be started.
func (s *stdio) closeChildEnds() { closeAll(s.childEnds[:]...) }

// closeOurEnds closes our ends of the child's stdin, stdout and stderr.
func (s *stdio) closeOurEnds() { closeAll(s.stdin, s.stdout, s.stderr) }

// closeAll closes those of files that are not nil.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// errSurvived is wrapped in the error of Stop when the process or a descendant has survived SIGKILL.
var errSurvived = errors.New("still running after SIGKILL")
