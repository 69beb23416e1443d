package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A child is the system's part of a Process: a process, and the job object that holds the process and its descendants. The system
// kills all processes of the job when the last handle to the job is closed, hence also when this process is killed.
type child struct {
	pid    int            // the process id
	proc   *os.Process    // the process, until wait has returned
	job    windows.Handle // the job object; 0: isGone has closed it
	killed atomic.Bool    // kill was called, so the exit status is ours
}

// startChild starts the file at path as s says, inside a new job object. files are its stdin, stdout and stderr.
func startChild(_ context.Context, path string, s *Spec, files [3]*os.File) (*child, error) {
	job, err := newJob()
	if err != nil {
		return nil, fmt.Errorf("job object: %w", err)
	}
	env := s.Env
	if root, ok := lookupVar(env, "SYSTEMROOT"); !ok || root == "" {
		env = withVar(env, "SYSTEMROOT", os.Getenv("SYSTEMROOT")) // most programs need it to start
	}
	proc, err := os.StartProcess(path, append([]string{s.Path}, s.Args...), &os.ProcAttr{
		Dir:   s.Dir,
		Env:   env,
		Files: files[:],
		Sys: &syscall.SysProcAttr{
			HideWindow: true,
			// A suspended process cannot start descendants before it is in the job.
			CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
		},
	})
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, err
	}
	c := &child{pid: proc.Pid, proc: proc, job: job}
	if err := c.enterJob(); err != nil {
		_ = proc.Kill()
		_, _ = proc.Wait()
		_ = windows.CloseHandle(job)
		return nil, err
	}
	return c, nil
}

// newJob makes a job object whose processes are killed when its last handle is closed.
func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

// enterJob puts the suspended process into the job and lets it run.
func (c *child) enterJob() error {
	var jobErr error
	err := c.proc.WithHandle(func(h uintptr) {
		jobErr = windows.AssignProcessToJobObject(c.job, windows.Handle(h))
	})
	if err := errors.Join(err, jobErr); err != nil {
		return fmt.Errorf("job object: %w", err)
	}
	if err := resume(uint32(c.pid)); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	return nil
}

// resume lets the threads of a process run that was started suspended.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	resumed := false
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		_ = windows.CloseHandle(thread)
		if err != nil {
			return err
		}
		resumed = true
	}
	if !resumed {
		return errors.New("the process has no thread")
	}
	return nil
}

// wait waits until the process has exited, ends its descendants, and returns how the process ended: nil for exit status 0,
// else the error for Process.ExitError. It ends the descendants because one could hold stdout or stderr open, and pipes
// have no read deadlines on Windows.
func (c *child) wait() error {
	state, err := c.proc.Wait()
	_ = windows.TerminateJobObject(c.job, 1)
	if err != nil {
		return fmt.Errorf("exit status unknown: %w", err)
	}
	switch code := uint32(state.ExitCode()); {
	case code == 0:
		return nil
	case c.killed.Load():
		return errors.New("killed by the bridge")
	case code >= 1<<31: // an NTSTATUS, which is usually written in hex
		return fmt.Errorf("exit status 0x%x", code)
	default:
		return exitStatus(code)
	}
}

// terminate sends CTRL_BREAK to the process and its group, which is the closest to SIGTERM. It has no effect on a
// child that does not share our console.
func (c *child) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(c.pid))
}

// kill ends the process and all its descendants at once.
func (c *child) kill() {
	c.killed.Store(true)
	_ = windows.TerminateJobObject(c.job, 1)
}

// terminateStrays does nothing: no descendant can leave the job object, so there are no strays.
func (c *child) terminateStrays() {}

// killStrays does nothing: no descendant can leave the job object, so there are no strays.
func (c *child) killStrays() {}

// reap does nothing: wait has reaped the process, and isGone closes its job.
func (c *child) reap() {}

// jobAccounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, as Windows fills it: the order and the types of all fields
// are given. Only Active is used.
type jobAccounting struct {
	TotalUserTime, TotalKernelTime           int64  // CPU time of all processes that the job has had; not used
	ThisPeriodUserTime, ThisPeriodKernelTime int64  // CPU time since a limit on it was set last; not used
	PageFaults                               uint32 // how many page faults the processes have had; not used
	Total                                    uint32 // how many processes the job has had; not used
	Active                                   uint32 // how many processes the job has now
	TotalTerminated                          uint32 // how many processes were ended because of a limit; not used
}

// isGone reports whether the job has no more processes, and closes the job then.
func (c *child) isGone() bool {
	if c.job == 0 {
		return true
	}
	var info jobAccounting
	err := windows.QueryInformationJobObject(c.job, windows.JobObjectBasicAccountingInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err != nil || info.Active > 0 {
		return false
	}
	_ = windows.CloseHandle(c.job)
	c.job = 0
	return true
}

// openTerminal returns an error: there are no pseudo-terminals here.
func openTerminal() (ours, childs *os.File, err error) {
	return nil, nil, errors.New("a terminal for stdout is not available on Windows: run without it")
}

// isTerminalEnd reports whether err says that nobody has the other end of the pipe open.
func isTerminalEnd(err error) bool { return errors.Is(err, windows.ERROR_BROKEN_PIPE) }

// peekNamedPipe is the system's function that says how many bytes are in a pipe.
var peekNamedPipe = windows.NewLazySystemDLL("kernel32.dll").NewProc("PeekNamedPipe")

// readNow reads what is in the pipe and does not wait. It returns 0, nil if the pipe is empty.
func (o *childOutput) readNow(b []byte) (int, error) {
	raw, err := o.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var available uint32
	var peekErr error
	err = raw.Control(func(fd uintptr) {
		ok, _, err := peekNamedPipe.Call(fd, 0, 0, 0, uintptr(unsafe.Pointer(&available)), 0)
		if ok == 0 {
			peekErr = err
		}
	})
	if err := errors.Join(err, peekErr); err != nil || available == 0 {
		return 0, err
	}
	return o.f.Read(b)
}

// Subreap does nothing here. On Linux it has the process adopt the orphans among its descendants, so that they can be found and
// ended; here each child's job object holds all descendants of the child.
func Subreap() (stop func(), err error) { return func() {}, nil }

// StartWatchdog does nothing here. Elsewhere it starts a process that ends our children if this process is killed; here the
// system ends the jobs of all children with this process.
func StartWatchdog(func(error)) {}

// WatchdogMain returns false, as in every process that is not the watchdog: there is none here.
func WatchdogMain() bool { return false }
