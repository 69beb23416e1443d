package command

// A systemProcess is a process of this machine, with what tells who descends from whom.
type systemProcess struct {
	pid, parentPID, groupID int
	startTime               string // tells it from a later process with the same pid
	name                    string // of the program
	isZombie                bool   // it has ended
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

// stillRunning returns which of before still run, and all other processes in the group of pid but pid itself.
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
