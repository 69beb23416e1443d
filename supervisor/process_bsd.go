//go:build unix && !linux

package supervisor

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// system is the part of a child that differs between the Unixes: here there is none.
type system struct{}

// newMarker returns "": a child has no marker here.
func newMarker() string { return "" }

// start starts the file at path as s says; files are its stdin, stdout and stderr.
func (c *child) start(_ context.Context, path string, s *Spec, files [3]*os.File) (err error) {
	env := s.Env
	if env == nil {
		env = []string{}
	}
	c.pid, err = children.fork(path, s, env, files, &syscall.SysProcAttr{})
	return err
}

// wait waits until the process has exited and returns how it ended: nil for exit status 0, else the error for
// Process.ExitError. It also reaps the process, because these systems have no reliable way to wait without reaping. So
// the id of the group is free as soon as the group is empty. wait checks this at once, and an empty group is never
// signalled again. One case remains: if descendants in the group outlive the child and end before Stop, other
// processes may get the group's id, and Stop's signals.
func (c *child) wait() error {
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(c.pid, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if unix.Kill(-c.pid, 0) == unix.ESRCH {
			c.forgetGroup()
		}
		if err != nil {
			return fmt.Errorf("exit status unknown: %w", err)
		}
		return exitError(ws)
	}
}

// reapZombie does nothing: wait has reaped the process.
func (c *child) reapZombie() {}

// release does nothing: there is nothing to close.
func (c *child) release() {}

// groupIsDead returns false: this system does not tell which members of a group are zombies.
func groupIsDead(int) bool { return false }

// reapOrphans does nothing: Subreap, which has orphans adopted, does nothing here.
func (t *childTable) reapOrphans() {}

// eachOrphan does nothing: Subreap, which has orphans adopted, does nothing here.
func (t *childTable) eachOrphan(string, func(int)) (unsure bool) { return false }

// Subreap does nothing here. On Linux it has the process adopt the orphans among its descendants, so that they can be found and
// ended.
func Subreap() (stop func(), err error) { return func() {}, nil }
