package supervisor

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// startDetached starts a process without our console and, where our job object allows it, outside of that; files are
// its stdin, stdout and stderr. wait waits for its end.
func startDetached(path string, args, env []string, files [3]*os.File) (wait func(), err error) {
	start := func(more uint32) (*os.Process, error) {
		return os.StartProcess(path, append([]string{path}, args...), &os.ProcAttr{
			Env: env, Files: files[:],
			Sys: &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS | more},
		})
	}
	proc, err := start(windows.CREATE_BREAKAWAY_FROM_JOB)
	if err != nil {
		if proc, err = start(0); err != nil {
			return nil, err
		}
	}
	return func() { _, _ = proc.Wait() }, nil
}
