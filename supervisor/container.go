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

// containerWait bounds the end of a container: the commands that kill it, and
// the wait until it is gone.
const containerWait = 10 * time.Second

// A container is one that a child runs and that no signal reaches: it belongs to
// an engine, and its program is only the engine's client. It is known by the
// file into which that writes its id. The watchdog gets it as JSON.
type container struct {
	Engine  string   // the client: an absolute path
	Globals []string // its arguments before the command
	Env     []string
	Dir     string
	IDFile  string
	Private bool // the directory of IDFile is ours, and IDFile the only file in it
	Remove  bool // once it has ended the container is removed

	key  int                        // in the watchdog
	tell func(id string, err error) // Spec.OnContainer
}

// contained returns the container that s will run with the program at path, and
// s with what is needed to find it. The container is nil where there is none,
// or none that Stop should end.
func (s *Spec) contained(path string) (*container, *Spec) {
	line, ok := parseContainerLine(s.Path, s.Args)
	if !ok || line.detach {
		return nil, s
	}
	c := &container{
		Engine: path, Globals: line.globals, Env: s.Env, Dir: s.Dir, IDFile: line.cidFile, Remove: line.remove,
		tell: s.OnContainer,
	}
	if c.tell == nil {
		c.tell = func(string, error) {}
	}
	switch {
	case strings.HasPrefix(path, "/snap/"): // sees another /tmp than we
		c.tell("", errors.New("programs from a snap cannot tell which container they run"))
		return nil, s
	case c.IDFile == "":
		dir, err := os.MkdirTemp("", "mcp-bridge-")
		if err != nil {
			c.tell("", err)
			return nil, s
		}
		c.IDFile, c.Private = filepath.Join(dir, "cid"), true
		with := *s
		with.Args = slices.Insert(slices.Clone(s.Args), line.run, "--cidfile", c.IDFile)
		s = &with
	default:
		if !filepath.IsAbs(c.IDFile) {
			c.IDFile = filepath.Join(s.Dir, c.IDFile)
		}
		if abs, err := filepath.Abs(c.IDFile); err == nil { // the watchdog is elsewhere
			c.IDFile = abs
		}
		if _, err := os.Lstat(c.IDFile); !errors.Is(err, fs.ErrNotExist) {
			return nil, s // holds the id of another container, and the client will refuse it
		}
	}
	c.key = watchdog.addContainer(c)
	return c, s
}

// forget takes the container from the watchdog, and removes the file.
func (c *container) forget() {
	watchdog.removeContainer(c.key)
	c.removeFile()
}

func (c *container) removeFile() {
	if c.Private {
		_ = os.Remove(c.IDFile)
		_ = os.Remove(filepath.Dir(c.IDFile))
	}
}

// end kills the container if there is one, and returns when it is gone. id is
// "" if none was made. The client must have ended: it could make one yet.
func (c *container) end() (id string, err error) {
	id, err = c.id()
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

// id returns what stands in the file, "" if nothing does.
func (c *container) id() (string, error) {
	f, err := os.Open(c.IDFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the file for its id: %w", cause(err)) // without its name, which is the user's
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 100))
	id := strings.TrimSpace(string(b))
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

// kill kills the container, and goes on until it has ended and, if it is to be, was removed.
func (c *container) kill(ctx context.Context, id string) error {
	said, err := c.command(ctx, "kill", "--signal", "KILL", id)
	if errors.Is(err, fs.ErrNotExist) { // the client
		return err
	}
	last := []string{"wait", id}
	if c.Remove {
		last = []string{"rm", "-f", id}
	}
	for !isGone(said, err, c.Remove) {
		if said, err = c.command(ctx, last...); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond): // the engine may be at it
		}
	}
	return nil
}

// isGone reports whether the engine refused a command because there is no such
// container, or, if that is enough, none that runs.
func isGone(said string, err error, removed bool) bool {
	if err == nil {
		return false
	}
	said = strings.ToLower(said)
	return strings.Contains(said, "no such container") ||
		!removed && (strings.Contains(said, "not running") || strings.Contains(said, "can only kill running"))
}

// command runs a command of the engine. It returns what that says on stderr.
func (c *container) command(ctx context.Context, args ...string) (said string, err error) {
	p, err := Start(ctx, Spec{
		Path: c.Engine, Args: slices.Concat(c.Globals, args), Env: c.Env, Dir: c.Dir,
		Shown: filepath.Base(c.Engine), ShownDir: "that of the server",
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

// exitStatus is the status, other than 0, with which a process has exited.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// clientFailed is the status of a client that could not run the container, or
// has lost its engine. Others are those of the container's program.
const clientFailed exitStatus = 125

// toldEnd reports whether a client that ended so has told how its container ended.
func toldEnd(err error) bool {
	status, ok := errors.AsType[exitStatus](err)
	return err == nil || ok && status != clientFailed
}

// endContainer ends what the child's end has left of its container. That costs
// nothing where the client has told how the container ended.
func (p *Process) endContainer() error {
	c := p.container
	if c == nil {
		return nil
	}
	defer c.forget()
	if p.hasExited() && toldEnd(p.exitErr) {
		return nil
	}
	id, err := c.end()
	if id == "" && err == nil {
		return nil
	}
	c.tell(id, err)
	if err != nil {
		return fmt.Errorf("stop %s: its container: %w", p.name, err)
	}
	return nil
}
