package supervisor

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// killMarked kills every process with a marker of one of the groups or starts, and repeats that until no such process is left.
// One round is not enough: a process may fork during the round, and in the middle of an exec a process has no marker.
func (g guardedSet) killMarked() {
	const (
		rounds = 50 // at most: a process that hangs in the kernel is never gone
		quiet  = 25 // rounds without a find, after which processes without an environment no longer count
	)
	idleRounds := 0
	for range rounds {
		pids, err := allPids()
		if err != nil {
			return
		}
		killed, unsure := g.killIn(pids)
		switch {
		case killed > 0:
			idleRounds = 0
		case !unsure || idleRounds == quiet:
			return
		default:
			idleRounds++
			time.Sleep(maxPollInterval)
		}
	}
}

// killIn kills those of the processes pids that have a marker of one of the groups or starts, and returns how many. unsure: the
// marker of some process cannot be read now.
func (g guardedSet) killIn(pids []int) (killed int, unsure bool) {
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		marker, sure := markerOf(pid)
		unsure = unsure || !sure
		if g.coversMarker(marker) && unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed, unsure
}

// coversMarker reports whether marker is, or extends, the marker of one of the groups or of a child that was being started.
func (g guardedSet) coversMarker(marker string) bool {
	for _, m := range g.Groups {
		if matchesMarker(m, marker) {
			return true
		}
	}
	for m := range g.Starting {
		if matchesMarker(m, marker) {
			return true
		}
	}
	return false
}
