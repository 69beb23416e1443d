package bridgetest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// AwaitSyscall waits until a thread of a process is in the system call with this number. tid is the thread's id; 0: any one. Where the kernel does
// not say in which system call a thread is, the test is skipped.
func AwaitSyscall(t testing.TB, pid, tid, call int) {
	t.Helper()
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid)); err != nil {
		t.Skip("the kernel does not say in which system call a thread is: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		Must(t, err)
		for _, thread := range threads {
			now, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, thread.Name()))
			if strings.HasPrefix(string(now), strconv.Itoa(call)+" ") && (tid == 0 || thread.Name() == strconv.Itoa(tid)) {
				return
			}
		}
		runtime.Gosched()
	}
	t.Fatalf("process %d is not in system call %d", pid, call)
}
