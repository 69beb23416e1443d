package supervisor

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func init() { roles["pipelock"] = rolePipeLock }

// rolePipeLock holds the lock of a pipe until it ends, after a minute at the latest: that of its stdout ("stdout"), by splice(2) of a socket that
// nobody writes to, or that of its stdin ("stdin"), by splice(2) of what is in it to a socket that nobody reads.
func rolePipeLock(args []string) {
	time.AfterFunc(time.Minute, func() { os.Exit(0) })
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		os.Exit(1)
	}
	if args[0] == "stdout" {
		_, _ = unix.Splice(ends[0], nil, 1, nil, 1<<16, 0)
		return
	}
	for err == nil {
		_, err = unix.SendmsgN(ends[0], make([]byte, 1<<10), nil, nil, unix.MSG_DONTWAIT)
	}
	_, _ = unix.Splice(0, nil, ends[0], nil, 1<<16, 0)
}

// A child that holds the lock of its stdout's pipe has only its own reader wait: the kernel does not return to that one, so Go's scheduler
// must have been told, or no garbage could be collected and everything would stop.
func TestChildHoldsLockOfStdout(t *testing.T) {
	p := mustStart(t, self("pipelock", "stdout"))
	bridgetest.AwaitSyscall(t, p.PID(), 0, unix.SYS_SPLICE)
	var reader int
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		reader = unix.Gettid()
		close(began)
		_, _ = p.Stdout().Read(make([]byte, 1))
	}()
	<-began
	bridgetest.AwaitSyscall(t, os.Getpid(), reader, unix.SYS_READ)
	before := time.Now()
	runtime.GC()
	if d := time.Since(before); d > 10*time.Second {
		t.Errorf("a garbage collection took %v", d)
	}
	bridgetest.Must(t, unix.Kill(p.PID(), unix.SIGKILL))
	<-ended
}

// Stop goes on to its next step where stdin cannot be closed, because the child holds the lock of the pipe.
func TestStopChildThatHoldsLockOfStdin(t *testing.T) {
	s := self("pipelock", "stdin")
	s.Stop = StopWaits{Stdin: 10 * time.Millisecond}
	p := mustStart(t, s)
	_, err := p.Stdin().Write([]byte("text"))
	bridgetest.Must(t, err)
	bridgetest.AwaitSyscall(t, p.PID(), 0, unix.SYS_SPLICE)
	before := time.Now()
	mustStop(t, p)
	if d := time.Since(before); d > 10*time.Second {
		t.Errorf("Stop took %v", d)
	}
}
