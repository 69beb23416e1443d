package supervisor

import (
	"os"

	"golang.org/x/sys/unix"
)

// killMarked kills every process with one of the markers, and looks again
// until there is none, because a process may fork while we look.
func (g guarded) killMarked() {
	const rounds = 50 // a process that hangs in the kernel must not keep us
	for range rounds {
		pids, err := allPids()
		if err != nil || g.killIn(pids) == 0 {
			return
		}
	}
}

func (g guarded) killIn(pids []int) (killed int) {
	for _, pid := range pids {
		marker, _ := markerOf(pid)
		if pid != os.Getpid() && g.covers(marker) && unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// covers reports whether marker is or extends one of ours.
func (g guarded) covers(marker string) bool {
	for _, m := range g {
		if marks(m, marker) {
			return true
		}
	}
	return false
}
