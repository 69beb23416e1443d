//go:build unix

package supervisor

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A child is the system's part of a Process. The waiter goroutine calls wait, and also reap if Stop has given up. Only
// Stop calls the other methods, hence one goroutine at a time. Strays are descendants that have left the child's
// process group; they can be found on Linux, after Subreap.
type child struct {
	pid    int    // the process id, which is also the id of the process group
	marker string // the value of markerVar in the environment of the child, with which that of each descendant begins; "" on other systems than Linux
	system        // what differs between the Unixes

	groupGone  atomic.Bool  // the group was found empty: its id is not signalled any more, as it may belong to other processes
	groupPolls int          // how often isGroupEmpty has found members, dead or alive: the more often, the rarer it looks whether all are dead
	terminated map[int]bool // the ids of the strays to which terminateStrays has sent SIGTERM
}

// fork starts the file at path, with s.Args, in a process group of its own, and enters the child in the table. It returns
// the process id. files are the child's stdin, stdout and stderr. It holds the lock for both, so that the reaper does not
// take the child for an orphan.
func (t *childTable) fork(path string, s *Spec, env []string, files [3]*os.File, sys *syscall.SysProcAttr) (int, error) {
	sys.Setpgid = true
	attr := &syscall.ProcAttr{Dir: s.Dir, Env: env, Sys: sys}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd()) // Fd also makes the child's end blocking, as programs expect
	}
	argv := append([]string{s.Path}, s.Args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, err
	}
	t.add(pid)
	return pid, nil
}

// add enters a child that was just started in the table. The caller holds the lock.
func (t *childTable) add(pid int) {
	if t.ownPIDs == nil {
		t.ownPIDs = make(map[int]bool)
	}
	t.ownPIDs[pid] = true
}

// children is the one table of the children of this operating-system process.
var children childTable

// A childTable knows which children this package has started, and on Linux which orphans it has adopted. Children are
// reaped, and removed from the table, only under the lock: whoever holds the lock may signal any pid in the table.
type childTable struct {
	mu            sync.Mutex        // the table's lock: guards all of it
	ownPIDs       map[int]bool      // ids of the children that this package has started and not reaped
	orphans       map[int]string    // adopted children and their markers; "": not known yet, or it has none
	markerless    map[int]time.Time // orphans whose environment could not be read or was empty, and since when that is so
	adoptsOrphans bool              // Subreap is active
}

// startChild starts the file at path as s says, tells the watchdog of the child's group, and returns the child. files are
// its stdin, stdout and stderr. The watchdog knows the marker before: if we are killed in between, it finds the child and
// its descendants.
func startChild(ctx context.Context, path string, s *Spec, files [3]*os.File) (*child, error) {
	c := &child{marker: newMarker()}
	watchdog.beginStart(c.marker)
	if err := c.start(ctx, path, s, files); err != nil {
		watchdog.endStart(c.marker)
		return nil, err
	}
	watchdog.add(c.pid, c.marker)
	return c, nil
}

// reap reaps the process, which must have exited, takes it out of the table and lets go of all that belongs to it. Its
// process id is free then.
func (c *child) reap() {
	children.mu.Lock()
	c.reapZombie()
	delete(children.ownPIDs, c.pid)
	children.mu.Unlock()
	c.release()
}

// terminate sends SIGTERM to the process group, unless that was found empty, and to the strays that it has not sent it
// to before. No other group can have got the group's id by then: until the child is reaped the child itself holds the
// id, and afterwards isGone has seen a member of the group at most maxPollInterval ago.
func (c *child) terminate() {
	c.signalGroup(unix.SIGTERM)
	c.terminateStrays()
}

// kill sends SIGKILL to the process group, unless that was found empty. Strays are left to killStrays.
func (c *child) kill() {
	c.signalGroup(unix.SIGKILL)
}

// signalGroup sends a signal to the process group, unless that was found empty.
func (c *child) signalGroup(sig syscall.Signal) {
	if !c.groupGone.Load() {
		_ = unix.Kill(-c.pid, sig)
	}
}

// terminateStrays sends SIGTERM to the strays that it has not sent it to before.
func (c *child) terminateStrays() {
	children.eachOrphan(c.marker, func(pid int) {
		if pgid, _ := unix.Getpgid(pid); pgid == c.pid || c.terminated[pid] {
			return // the group got the signal, or this stray did before
		}
		if c.terminated == nil {
			c.terminated = make(map[int]bool)
		}
		c.terminated[pid] = true
		_ = unix.Kill(pid, unix.SIGTERM)
	})
}

// killStrays sends SIGKILL to all strays.
func (c *child) killStrays() {
	children.eachOrphan(c.marker, func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) })
}

// isGone reports whether the group is empty and no stray is left. The child must be reaped before.
func (c *child) isGone() bool {
	if !c.groupGone.Load() {
		if !c.isGroupEmpty() {
			return false
		}
		c.forgetGroup()
	}
	none := true
	unsure := children.eachOrphan(c.marker, func(int) { none = false })
	return none && !unsure
}

// forgetGroup is called when the group is empty: its id is never signalled again, and the watchdog forgets it.
func (c *child) forgetGroup() {
	c.groupGone.Store(true)
	watchdog.remove(c.pid)
}

// isGroupEmpty reports whether nobody is left in the group, or only zombies. The latter is expensive to find out, and
// looked at less and less often.
func (c *child) isGroupEmpty() bool {
	if unix.Kill(-c.pid, 0) == unix.ESRCH {
		return true
	}
	children.reapOrphans()
	if unix.Kill(-c.pid, 0) == unix.ESRCH {
		return true
	}
	// For kill, a dead member counts until its parent has reaped it, and some parents
	// (even some that are process 1) reap late or never. To look for such members is
	// expensive, so it is done less and less often.
	c.groupPolls++
	return (c.groupPolls&(c.groupPolls-1) == 0 || c.groupPolls%32 == 0) && groupIsDead(c.pid)
}

// exitError returns the error of Process.ExitError for a process that has ended so; nil: with exit status 0.
func exitError(ws syscall.WaitStatus) error {
	switch {
	case ws.Signaled():
		return killedBy(ws.Signal())
	case ws.ExitStatus() != 0:
		return exitStatus(ws.ExitStatus())
	}
	return nil
}

// killedBy returns the error of Process.ExitError for a process that a signal has ended.
func killedBy(sig syscall.Signal) error {
	name := unix.SignalName(sig)
	if name == "" {
		name = fmt.Sprintf("%d", int(sig))
	}
	return fmt.Errorf("killed by signal %s", name)
}
