package supervisor

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func init() { roles["pipelock"] = rolePipeLock }

// rolePipeLock holds the lock of the pipe that is its stdout, by splice(2) of a socket that nobody writes to, and exits after 10 s.
func rolePipeLock([]string) {
	time.AfterFunc(10*time.Second, func() { os.Exit(0) })
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		os.Exit(1)
	}
	_, _ = unix.Splice(ends[0], nil, 1, nil, 1<<16, 0)
}

// A child that holds the lock of its stdout's pipe has only its own reader wait: the kernel does not return to that one, so Go's scheduler
// must have been told, or no garbage could be collected and everything would stop.
func TestChildHoldsLockOfPipe(t *testing.T) {
	if _, err := os.ReadFile("/proc/self/syscall"); err != nil {
		t.Skip("the kernel does not say in which system call a thread is: ", err)
	}
	p := mustStart(t, self("pipelock"))
	awaitSyscall(t, p.PID(), unix.SYS_SPLICE, "any thread")
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
	awaitSyscall(t, os.Getpid(), unix.SYS_READ, strconv.Itoa(reader))
	before := time.Now()
	runtime.GC()
	if d := time.Since(before); d > 5*time.Second {
		t.Errorf("a garbage collection took %v", d)
	}
	bridgetest.Must(t, unix.Kill(p.PID(), unix.SIGKILL))
	<-ended
}

// awaitSyscall waits until a thread of a process is in a system call: the one with this id, or "any thread".
func awaitSyscall(t *testing.T, pid, call int, thread string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		bridgetest.Must(t, err)
		for _, entry := range threads {
			now, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, entry.Name()))
			if strings.HasPrefix(string(now), strconv.Itoa(call)+" ") && (thread == "any thread" || thread == entry.Name()) {
				return
			}
		}
		runtime.Gosched()
	}
	t.Fatalf("process %d is not in system call %d", pid, call)
}
