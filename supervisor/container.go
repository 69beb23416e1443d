package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// containerWait is how long the end of a container may take in all: the engine's commands that kill it, and the wait
// until it is gone.
const containerWait = 10 * time.Second

// A container is what is known of the container that a child runs, to end it: signals to the child do not reach it,
// because the child is only a client of the container engine. The watchdog gets a container as JSON.
type container struct {
	Engine  string   // the container engine's program (docker, podman, nerdctl), as an absolute path
	Globals []string // the arguments that choose an engine, which go before each command
	Env     []string // the environment of Engine's commands
	Dir     string   // the working directory of Engine's commands
	IDFile  string   // the file into which the client writes the container's id
	Private bool     // the directory of IDFile is ours, and IDFile the only file in it: both are removed in the end
	Remove  bool     // the engine removes the container when it has ended (--rm)

	key         int                        // the number by which the watchdog knows the container
	onContainer func(id string, err error) // Spec.OnContainer, or a function that does nothing
}

// withContainer returns the container that s will run with the program at path, and a Spec with the arguments that make the client
// write the container's id. If s runs no container, or none that Stop should end, the container is nil and the Spec is s.
func (s *Spec) withContainer(path string) (*container, *Spec) {
	line, ok := parseContainerLine(s.Path, s.Args)
	if !ok || line.detach {
		return nil, s
	}
	c := &container{
		Engine: path, Globals: line.globals, Env: s.Env, Dir: s.Dir, IDFile: line.cidFile, Remove: line.remove,
		onContainer: s.OnContainer,
	}
	if c.onContainer == nil {
		c.onContainer = func(string, error) {}
	}
	switch {
	case strings.HasPrefix(path, "/snap/"): // such a program has a /tmp of its own
		c.onContainer("", errors.New("programs from a snap cannot tell which container they run"))
		return nil, s
	case c.IDFile == "":
		dir, err := os.MkdirTemp("", "mcp-bridge-")
		if err != nil {
			c.onContainer("", err)
			return nil, s
		}
		c.IDFile, c.Private = filepath.Join(dir, "cid"), true
		with := *s
		with.Args = slices.Insert(slices.Clone(s.Args), line.afterRun, "--cidfile", c.IDFile)
		s = &with
	default:
		if !filepath.IsAbs(c.IDFile) {
			c.IDFile = filepath.Join(s.Dir, c.IDFile)
		}
		if abs, err := filepath.Abs(c.IDFile); err == nil { // the watchdog has another working directory
			c.IDFile = abs
		}
		if _, err := os.Lstat(c.IDFile); !errors.Is(err, fs.ErrNotExist) {
			return nil, s // the file has the id of another container, so the client will refuse to run
		}
	}
	c.key = watchdog.addContainer(c)
	return c, s
}

// forget has the watchdog forget the container (removeContainer), and removes the file with its id, if that is ours.
func (c *container) forget() {
	watchdog.removeContainer(c.key)
	c.removeFile()
}

// removeFile removes IDFile and its directory, if they are ours.
func (c *container) removeFile() {
	if c.Private {
		_ = os.Remove(c.IDFile)
		_ = os.Remove(filepath.Dir(c.IDFile))
	}
}

// end kills the container that the client has made, and returns when it is gone or containerWait is over. id is "" if
// the client has made none, or, with an error, if the id cannot be read. The client must have ended before the call:
// otherwise it could make a container afterwards.
func (c *container) end() (id string, err error) {
	id, err = c.readID()
	if id == "" || err != nil {
		return id, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), containerWait)
	defer cancel()
	if err := c.kill(ctx, id); err != nil {
		return id, fmt.Errorf("it may still run: %w", err)
	}
	return id, nil
}

// readID reads the container's id from IDFile. id is "" without an error if there is no file, or an
// empty one: the client has made no container.
func (c *container) readID() (id string, err error) {
	f, err := os.Open(c.IDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the file for its id: %w", bareCause(err)) // the file's name is private to the user
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 100))
	id = strings.TrimSpace(string(b))
	hex := func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'f' }
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", nil
	case len(id) < 12 || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool { return !hex(r) }):
		return "", errors.New("the file for its id holds another thing")
	}
	return id, nil
}

// kill has the engine kill the container with this id, and returns nil when it has ended; if Remove is set, when it
// was removed. It tries again until ctx has ended, and returns the engine's last error then; at once if the engine's
// program does not exist any more.
func (c *container) kill(ctx context.Context, id string) error {
	said, err := c.command(ctx, "kill", "--signal", "KILL", id)
	if errors.Is(err, fs.ErrNotExist) { // there is no client any more
		return err
	}
	last := []string{"wait", id}
	if c.Remove {
		last = []string{"rm", "-f", id}
	}
	for !reportsNoContainer(said, err, c.Remove) {
		if said, err = c.command(ctx, last...); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond): // the engine may still be removing the container
		}
	}
	return nil
}

// reportsNoContainer reports whether a command of the engine has failed with err because there is no such container;
// said is its stderr. If removed is false, it is enough that the container does not run.
func reportsNoContainer(said string, err error, removed bool) bool {
	if err == nil {
		return false
	}
	said = strings.ToLower(said)
	return strings.Contains(said, "no such container") ||
		!removed && (strings.Contains(said, "not running") || strings.Contains(said, "can only kill running"))
}

// command runs the engine with args after Globals. said is what it wrote to stderr; err says that it could not be run,
// has failed, or has taken longer than ctx.
func (c *container) command(ctx context.Context, args ...string) (said string, err error) {
	p, err := Start(ctx, Spec{
		Path: c.Engine, Args: slices.Concat(c.Globals, args), Env: c.Env, Dir: c.Dir,
		ShownPath: filepath.Base(c.Engine), ShownDir: "that of the server",
		Stop: StopWaits{Stdin: -1, Term: -1},
	})
	if err != nil {
		return "", err
	}
	_ = p.Stdin().Close()
	select {
	case <-p.Done():
		err = p.ExitError()
	case <-ctx.Done():
		err = errors.New("it takes too long")
	}
	err = errors.Join(err, p.Stop())
	said = strings.Join(p.StderrTail(), " ")
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(c.Engine), args[0], err, said)
	}
	return said, err
}

// exitStatus is the error for a process that has exited with this status, which is not 0.
type exitStatus int

// Error returns a text such as "exit status 3".
func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// clientFailedStatus is the exit status of a container engine's client that could not run the container, or has lost
// its engine. Any other status is that of the program in the container.
const clientFailedStatus exitStatus = 125

// reportsContainerEnd reports whether err, with which the client has ended, also says that the container has ended: it
// is nil, or the status of the program in the container.
func reportsContainerEnd(err error) bool {
	status, ok := errors.AsType[exitStatus](err)
	return err == nil || ok && status != clientFailedStatus
}

// endContainer kills the container that the child was the client of, and tells Spec.OnContainer that it has, or that it
// could not. It does nothing if there is none, or if the client's exit status says that the container has ended
// (reportsContainerEnd). The error says that the container may still run.
func (p *Process) endContainer() error {
	c := p.container
	if c == nil {
		return nil
	}
	defer c.forget()
	if p.hasExited() && reportsContainerEnd(p.exitErr) {
		return nil
	}
	id, err := c.end()
	if id == "" && err == nil {
		return nil
	}
	c.onContainer(id, err)
	if err != nil {
		return fmt.Errorf("stop %s: its container: %w", p.name, err)
	}
	return nil
}
