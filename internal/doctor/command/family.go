package command

// A process is one of the system, as far as it matters who descends from whom.
type process struct {
	pid, parent, group int
	startTime          string // tells it from a later one with the same pid
	name               string
	zombie             bool
}

// descendants returns the processes that descend from pid, or are in its group, without itself
// and without those that have ended. It is empty where the system does not tell.
func descendants(pid int) []process {
	all := processes()
	member := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !member[p.pid] && (member[p.parent] || p.group == pid) {
				member[p.pid], grown = true, true
			}
		}
	}
	var found []process
	for _, p := range all {
		if member[p.pid] && p.pid != pid && !p.zombie {
			found = append(found, p)
		}
	}
	return found
}

// alive returns which of these still run, besides those that are in the group of pid.
func alive(before []process, pid int) []process {
	was := map[int]string{}
	for _, p := range before {
		was[p.pid] = p.startTime
	}
	var found []process
	for _, p := range processes() {
		began, known := was[p.pid]
		if p.pid != pid && !p.zombie && (known && began == p.startTime || p.group == pid) {
			found = append(found, p)
		}
	}
	return found
}
