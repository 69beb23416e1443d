//go:build unix

package supervisor

import (
	"os"
	"syscall"
)

// startDetached starts a process in a session of its own; files are its stdin, stdout and stderr. wait waits for its end and reaps
// it. While it lives it is in the table of our children, because the reaper takes every other child for an orphan.
func startDetached(path string, args, env []string, files [3]*os.File) (wait func(), err error) {
	attr := &syscall.ProcAttr{Env: env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, f := range files {
		attr.Files = append(attr.Files, f.Fd())
	}
	children.mu.Lock()
	defer children.mu.Unlock()
	pid, err := syscall.ForkExec(path, append([]string{path}, args...), attr)
	if err != nil {
		return nil, err
	}
	children.add(pid)
	return func() {
		c := &child{pid: pid}
		_ = c.wait()
		children.mu.Lock()
		defer children.mu.Unlock()
		c.reapZombie()
		delete(children.ownPIDs, pid)
	}, nil
}
