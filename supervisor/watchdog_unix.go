//go:build unix

package supervisor

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartWatchdog starts the watchdog: a small process, our own executable
// again, that outlives us and, if we are killed, kills the process groups of
// our children, on Linux every descendant with a marker, and the containers. It
// covers the processes started after it. It ends by itself when we end.
//
// main must call WatchdogMain before anything else for this to work. An error
// is worth a warning, no more: everything else works without. As process 1 no
// watchdog is needed, as the system then kills all. A second call does nothing.
func StartWatchdog() error {
	watchdog.mu.Lock()
	defer watchdog.mu.Unlock()
	if watchdog.w != nil || os.Getpid() == 1 {
		return nil
	}
	w, err := startWatchdog()
	if err != nil {
		return fmt.Errorf("start the watchdog: %w", err)
	}
	watchdog.w = w
	return nil
}

func startWatchdog() (*os.File, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = w.Close()
		return nil, err
	}
	defer null.Close()
	// Nothing of ours is inherited: not stderr, which somebody may read to its
	// end, nor the working directory, which somebody may want to unmount.
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{watchdogVar + "=1", "GOMAXPROCS=1"},
		Files: []uintptr{r.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if err := children.forkWatchdog(exe, attr); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

// forkWatchdog enters the watchdog in the table of our children, so that the
// reaper takes it for no orphan. It stays there: it ends after us.
func (t *childTable) forkWatchdog(exe string, attr *syscall.ProcAttr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(exe, []string{exe, "(watchdog)"}, attr)
	if err != nil {
		return err
	}
	t.enter(pid)
	return nil
}

// WatchdogMain is the first thing that main calls. In the process
// that StartWatchdog started it does the watchdog's work and never returns; in
// any other it returns false at once.
func WatchdogMain() bool {
	if os.Getenv(watchdogVar) == "" {
		return false
	}
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	g := newGuarded()
	g.follow(os.Stdin)
	g.killAll()
	os.Exit(0)
	return true
}

// killAll kills what is left. The groups' ids are still theirs: whoever ended
// with the bridge did so a moment ago.
func (g guarded) killAll() {
	for pgid := range g.groups {
		_ = unix.Kill(-pgid, unix.SIGKILL)
	}
	if len(g.groups) > 0 {
		g.killMarked()
	}
	g.endContainers()
}
