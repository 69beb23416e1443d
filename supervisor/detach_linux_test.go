package supervisor

import (
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A detached process is in a session of its own, without our marker; neither the reaper nor the end of Subreap, which ends
// all orphans, touches it; and it is reaped when it has ended.
func TestDetach(t *testing.T) {
	t.Setenv(markerVar, "ours")
	unreap, err := Subreap()
	bridgetest.Must(t, err)
	in, toIn, err := os.Pipe()
	bridgetest.Must(t, err)
	said, out, err := os.Pipe()
	bridgetest.Must(t, err)
	defer said.Close()
	done, err := Detach("/bin/sh", []string{"-c", `echo "$$ ${` + markerVar + `-none}"; read line; echo "$line"`}, in, out)
	bridgetest.Must(t, err)
	bridgetest.Must(t, in.Close())
	bridgetest.Must(t, out.Close())
	first := readLine(t, said)
	children.reapOrphans()
	unreap()
	select {
	case <-done:
		t.Error("it has ended")
	default:
	}
	_, err = io.WriteString(toIn, "go on\n")
	bridgetest.Must(t, err)
	bridgetest.Must(t, toIn.Close())
	if rest := readAll(t, said); rest != "go on\n" {
		t.Errorf("it says %q", rest)
	}
	<-done
	var pid int
	var marker string
	if n, err := fmt.Sscan(first, &pid, &marker); n != 2 || err != nil || marker != "none" {
		t.Errorf("it began with %q", first)
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("it was not reaped: %v", err)
	}
	children.mu.Lock()
	defer children.mu.Unlock()
	if len(children.ownPIDs) != 0 {
		t.Errorf("left: %v", children.ownPIDs)
	}
}
