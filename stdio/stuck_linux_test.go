package stdio

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// The child "pipelock" holds the lock of its stdout's pipe until it is killed.
func init() {
	children["pipelock"] = func() int {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return 1
		}
		_, _ = unix.Splice(ends[0], nil, 1, nil, 1<<16, 0)
		return 0
	}
}

// A read of stdout cannot be interrupted while the child holds the lock of the pipe. The child is stopped then, where Receive is to end and where
// Close was called.
func TestChildThatHoldsLockOfStdoutIsStopped(t *testing.T) {
	for _, byClose := range []bool{false, true} {
		var pid int
		c := dial(t, "pipelock", func(cmd *Command) {
			cmd.OnStart = func(id int) { pid = id }
			cmd.Spec.Stop = supervisor.StopWaits{Stdin: 10 * time.Millisecond}
		}).(*childConn)
		c.stuckAfter = 10 * time.Millisecond
		bridgetest.AwaitSyscall(t, pid, 0, unix.SYS_SPLICE)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		received := make(chan error, 1)
		go func() {
			received <- c.Receive(ctx, &burstSink{})
		}()
		for !c.stdout.reading.Load() {
			select {
			case err := <-received:
				t.Fatal("Receive has ended: ", err)
			default:
				runtime.Gosched()
			}
		}
		want := context.Canceled
		if byClose {
			want = io.EOF
			bridgetest.Must(t, c.Close(nil))
		} else {
			cancel()
		}
		if err := <-received; !errors.Is(err, want) {
			t.Errorf("closed: %v: Receive has ended with %v, want %v", byClose, err, want)
		}
	}
}
