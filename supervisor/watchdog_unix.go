//go:build unix

package supervisor

import (
	"fmt"
	"os"
	"syscall"

	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
	"github.com/mcp-bridge/mcp-bridge/supervisor/internal/watchdogwait"
)

// StartWatchdog has the watchdog start, a second process of our own executable, and does not wait for that. If this process is
// killed, the watchdog kills the process groups of our children, their containers, and on Linux every descendant with a marker. It
// covers the children that are started after StartWatchdog. The watchdog ends when this process ends.
//
// main must call WatchdogMain before anything else. failed is called, once at most, if the watchdog cannot be started: everything
// else works without it. Process 1 needs no watchdog, because the system kills all processes when process 1 ends. While a
// watchdog runs, another call does nothing.
func StartWatchdog(failed func(error)) {
	watchdog.mu.Lock()
	if watchdog.w != nil || os.Getpid() == 1 {
		watchdog.mu.Unlock()
		return
	}
	go func() { // ends when the watchdog is started; no child is started meanwhile (beginStart)
		w, err := startWatchdog()
		watchdog.w = w
		watchdog.mu.Unlock()
		if err != nil {
			failed(fmt.Errorf("start the watchdog: %w", err))
		}
	}()
}

// startWatchdog starts the watchdog, and returns our end of the pipe that it reads.
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
	// The watchdog inherits neither our stderr, whose reader may wait for its end, nor our
	// working directory, which somebody may want to unmount.
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{startpages.WatchdogVar + "=1", "GOMAXPROCS=1"},
		Files: []uintptr{r.Fd(), null.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if err := children.forkWatchdog(exe, attr); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

// forkWatchdog starts the watchdog, and enters it in the table, because the reaper takes every other child for an
// orphan. The entry stays: the watchdog ends after us.
func (t *childTable) forkWatchdog(exe string, attr *syscall.ProcAttr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(exe, []string{exe, "(watchdog)"}, attr)
	if err != nil {
		return err
	}
	t.add(pid)
	return nil
}

// WatchdogMain does the work of the watchdog in the process that StartWatchdog has started, and does not return there.
// In any other process it returns false at once. main must call it first. Where nothing is left to kill, that process
// has ended before its main is called (package watchdogwait).
func WatchdogMain() bool {
	left, ok := watchdogwait.Left()
	if !ok {
		return false
	}
	g := guardedSet{left}
	if len(g.Groups) > 0 || len(g.Starting) > 0 {
		g.killMarked()
	}
	g.endContainers()
	os.Exit(0)
	return true
}
