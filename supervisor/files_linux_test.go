package supervisor

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A process that cannot be started for want of file descriptors is an error, whichever of
// them is wanting, and takes none for good.
func TestStartWithoutFiles(t *testing.T) {
	mustStop(t, mustStart(t, sh("exit 0"))) // what is opened once is open now
	for _, terminal := range []bool{false, true} {
		free := 0
		for ; ; free++ {
			if free > 50 {
				t.Fatalf("terminal %v: cannot be started with 50 descriptors", terminal)
			}
			before := bridgetest.FDs()
			s := sh("exit 0")
			s.PTY = terminal
			restore := leaveFiles(t, free)
			p, err := Start(context.Background(), s)
			restore()
			if err == nil {
				mustStop(t, p)
				break
			}
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("terminal %v, %d descriptors: %v; want EMFILE", terminal, free, err)
			}
			if after := bridgetest.FDs(); after != before {
				t.Errorf("terminal %v, %d descriptors: %d are open afterwards, %d were before", terminal, free, after, before)
			}
		}
		if free < 6 {
			t.Errorf("terminal %v: started with %d descriptors", terminal, free)
		}
	}
}

// leaveFiles leaves this process n file descriptors to open, until restore is called.
func leaveFiles(t *testing.T, n int) (restore func()) {
	t.Helper()
	var was syscall.Rlimit
	bridgetest.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	low := was
	low.Cur = min(was.Cur, 256)
	bridgetest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	var fill []*os.File
	restore = func() {
		for _, f := range fill {
			_ = f.Close()
		}
		bridgetest.Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
	}
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			restore()
			t.Fatal(err)
		}
		fill = append(fill, f)
	}
	for range min(n, len(fill)) {
		_ = fill[0].Close()
		fill = fill[1:]
	}
	return restore
}
