package supervisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// killMarked kills every process with one of the markers, and looks again
// until there is none, because a process may fork while we look, and in the
// middle of an exec it shows no marker.
func (g guarded) killMarked() {
	const (
		rounds = 50 // a process that hangs in the kernel must not keep us
		quiet  = 25 // rounds in which nothing was found; many processes never show anything
	)
	none := 0
	for range rounds {
		pids, err := allPids()
		if err != nil {
			return
		}
		killed, unsure := g.killIn(pids)
		switch {
		case killed > 0:
			none = 0
		case !unsure || none == quiet:
			return
		default:
			none++
			time.Sleep(maxPoll)
		}
	}
}

func (g guarded) killIn(pids []int) (killed int, unsure bool) {
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		marker, sure := markerOf(pid)
		unsure = unsure || !sure
		if g.covers(marker) && unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed, unsure
}

// covers reports whether marker is or extends one of ours.
func (g guarded) covers(marker string) bool {
	for _, m := range g.groups {
		if marks(m, marker) {
			return true
		}
	}
	return false
}
