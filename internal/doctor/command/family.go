package command

// A systemProcess is one of the system, as far as it matters who descends from whom.
type systemProcess struct {
	pid, parentPID, groupID int
	startTime               string // tells it from a later one with the same pid
	name                    string
	isZombie                bool
}

// descendantsOf returns the processes that descend from pid, or are in its group, without itself
// and without those that have ended. It is empty where the system does not tell.
func descendantsOf(pid int) []systemProcess {
	all := listProcesses()
	member := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !member[p.pid] && (member[p.parentPID] || p.groupID == pid) {
				member[p.pid], grown = true, true
			}
		}
	}
	var found []systemProcess
	for _, p := range all {
		if member[p.pid] && p.pid != pid && !p.isZombie {
			found = append(found, p)
		}
	}
	return found
}

// stillRunning returns which of these still run, besides those that are in the group of pid.
func stillRunning(before []systemProcess, pid int) []systemProcess {
	was := map[int]string{}
	for _, p := range before {
		was[p.pid] = p.startTime
	}
	var found []systemProcess
	for _, p := range listProcesses() {
		began, known := was[p.pid]
		if p.pid != pid && !p.isZombie && (known && began == p.startTime || p.groupID == pid) {
			found = append(found, p)
		}
	}
	return found
}
