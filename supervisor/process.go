// Package supervisor starts, watches and stops child processes. It knows
// nothing of what they say.
//
// # What it promises
//
// A child is started without a shell, in a process group of its own. [Process.Stop]
// closes its stdin, waits, sends SIGTERM to the group, waits, sends SIGKILL to
// the group, and returns when the group is empty and the child is reaped.
// Every Process must be stopped, also one that has exited by itself: until
// then its process id is held, so that no signal can reach a stranger who got
// the same number.
//
// A child that is docker, podman or nerdctl and runs a container is only the client
// of an engine. Where it ends without having told how the container ended, above all
// by SIGKILL, Stop kills the container, too (see Spec.OnContainer). To learn the
// container's id it adds --cidfile to the child's arguments, with a file of
// its own in the directory for temporary files. What does not run in the
// foreground (--detach) is left alone.
//
//   - Linux: a child also dies when this process is killed (parent-death
//     signal). After [Subreap], descendants that left the group are ended too,
//     and orphans are reaped. After [StartWatchdog], grandchildren die with
//     this process as well, and so do containers.
//   - macOS and the BSDs: group and watchdog, but no parent-death signal, and a
//     descendant that makes a session of its own is not found. A child is
//     reaped when it exits, see the note at child.wait in process_bsd.go.
//   - Windows: a job object that dies with this process. There is no SIGTERM;
//     CTRL_BREAK is sent instead, which reaches only children that share our
//     console. When the child exits the rest of its job is ended at once.
//
// # Goroutines
//
// Each Process has two (waiter, stderr copier), which end before Stop returns.
// On Linux one goroutine, locked to its thread, does all starts and lives while
// there is any Process; Subreap has one until its stop function is called.
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
	// Name stands for the child in errors; "" means the base name of Path.
	Name string

	// Path is the command. Without a slash it is looked up in the PATH of Env,
	// or in our own PATH if Env has none; as in a shell's lookup, but never in
	// the working directory. A relative path with a slash is relative to Dir.
	Path string
	// Args are the arguments after the command. No shell sees them.
	Args []string

	// Env is the complete environment of the child, see Environ. nil means an
	// empty one: nothing of ours is inherited by accident. On Linux the
	// variable MCP_BRIDGE_PROCESS is added, by which descendants are found.
	Env []string
	// Dir is the child's working directory; "" means ours.
	Dir string

	// Shown and ShownDir stand in errors in place of Path and Dir, which may hold secrets. "": those
	// themselves.
	Shown, ShownDir string

	// PTY makes the child's stdout a terminal, for programs that buffer when
	// it is a pipe. The terminal is raw: bytes pass unchanged, nothing is
	// echoed. stdin and stderr stay pipes. Not available on Windows.
	PTY bool

	// Stop holds the waits of Process.Stop. The zero value means defaults.
	Stop StopWaits

	// Stderr is called for every line of the child's stderr, without the line
	// end and at most MaxStderrLine bytes long, from one goroutine. It must
	// not keep the slice. While it blocks, the child's stderr is not read, and
	// Stop waits for it. nil means that the lines are dropped; stderr is read
	// all the same.
	Stderr func(line []byte)

	// OnContainer is told of a container that was killed, as the child was its
	// client: by its id, and why it may still run, if that is so. id is "" if the
	// container cannot be told: then nobody will kill it. Start and Stop call it;
	// nil: nobody is told.
	OnContainer func(id string, err error)
}

func (s *Spec) name() string {
	if s.Name != "" {
		return s.Name
	}
	return filepath.Base(s.Path)
}

// A Process is a child that was started. All methods may be called
// concurrently.
type Process struct {
	name      string
	waits     StopWaits
	child     *child
	container *container // nil: the child runs none
	stdin     *os.File
	stdout    *childOutput
	stderr    *childOutput
	lines     *stderrLines

	exited    chan struct{} // closed when the process has exited; it may not be reaped yet
	done      chan struct{} // closed when, besides, stderr was read to its end
	exitErr   error         // set before exited is closed
	wg        sync.WaitGroup
	stop      sync.Once
	stopErr   error
	reapOnce  sync.Once
	abandoned atomic.Bool // Stop gave up: the waiter reaps
}

// Start starts s. ctx bounds the start only: when it is done later, nothing
// happens. The caller must call Stop in the end.
//
// The errors name the command and say what to do; one that wraps
// fs.ErrNotExist or fs.ErrPermission is about the command or its directory.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p, err := start(ctx, &s)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name(), err)
	}
	return p, nil
}

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
	box, s := s.contained(path)
	c, err := startChild(ctx, path, s, std.child)
	std.closeChildEnds()
	if err != nil {
		std.closeOurEnds()
		if box != nil {
			box.forget()
		}
		return nil, s.explainStart(err, path)
	}
	p := &Process{
		name:      s.name(),
		waits:     s.Stop.withDefaults(),
		child:     c,
		container: box,
		stdin:     std.stdin,
		stdout:    &childOutput{f: std.stdout},
		stderr:    &childOutput{f: std.stderr},
		lines:     &stderrLines{sink: s.Stderr},
		exited:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	stderrEnd := make(chan struct{})
	p.wg.Go(func() { p.lines.copyFrom(p.stderr); close(stderrEnd) })
	p.wg.Go(func() { p.wait(stderrEnd) })
	return p, nil
}

// wait is the waiter goroutine.
func (p *Process) wait(stderrEnd <-chan struct{}) {
	p.exitErr = p.child.wait()
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
	close(p.done)
}

// Pid returns the process id, which is also the id of the process group.
func (p *Process) Pid() int { return p.child.pid }

// Stdin returns our end of the child's stdin: an *os.File, so that it supports
// write deadlines (not on Windows). Closing it is the polite way to ask most
// programs to end; Stop does so too.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Stdout returns the child's stdout. Its Read returns io.EOF at the end of the
// output. Once the process has exited, a descendant that holds the pipe open
// delays this only until it was silent for a short time; what is in the pipe
// is always delivered first, however late it is read. After Stop, what was not
// read yet (a pipe's worth at most) can still be read.
//
// It has a method SetReadDeadline(time.Time) error like a file's, which works
// until Stop (not on Windows).
func (p *Process) Stdout() io.Reader { return p.stdout }

// Done is closed when the process has exited and its stderr was read to the
// end (or a short grace is over, if a descendant holds it open). Descendants
// may still live: only Stop ends them.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitError tells, after Done, how the process ended: nil for status 0, else
// an error that reads "exit status 3" or "killed by signal SIGKILL". Before
// Done it is nil.
func (p *Process) ExitError() error {
	select {
	case <-p.done:
		return p.exitErr
	default:
		return nil
	}
}

// StderrTail returns the last lines of the child's stderr, oldest first: at
// most ten, each cut at 512 bytes. After Done it is complete.
func (p *Process) StderrTail() []string { return p.lines.lastLines() }

// stdio is the three streams of a child, both ends of each.
type stdio struct {
	child                 [3]*os.File
	stdin, stdout, stderr *os.File
}

// openStdio makes the pipes ourselves: os/exec would close them under the
// reader when the process exits. All ends are close-on-exec.
func openStdio(terminal bool) (s *stdio, err error) {
	s = &stdio{}
	defer func() {
		if err != nil {
			s.closeChildEnds()
			s.closeOurEnds()
		}
	}()
	if s.child[0], s.stdin, err = os.Pipe(); err != nil {
		return nil, err
	}
	if terminal {
		s.stdout, s.child[1], err = openTerminal()
	} else {
		s.stdout, s.child[1], err = os.Pipe()
	}
	if err != nil {
		return nil, err
	}
	s.stderr, s.child[2], err = os.Pipe()
	return s, err
}

func (s *stdio) closeChildEnds() { closeAll(s.child[:]...) }
func (s *stdio) closeOurEnds()   { closeAll(s.stdin, s.stdout, s.stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// errSurvived is what Stop returns when something outlived SIGKILL.
var errSurvived = errors.New("still running after SIGKILL")
