package command

// A systemProcess is a process of this machine, with what tells who descends from whom.
type systemProcess struct {
	pid       int    // process id
	parentPID int    // process id of the process that has started it, or has taken it over
	groupID   int    // id of its process group
	startTime string // when it was started, as the system tells it; tells it from a later process with the same pid
	name      string // the name of its program
	isZombie  bool   // it has ended, and its parent has not asked for its exit status
}

// descendantsOf returns the processes that descend from the process pid, or are in its group, without itself and without those
// that have ended. It is empty where the system does not tell.
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

// stillRunning returns the processes of before that still run, and all that run in the process group pid, but not the process
// pid itself.
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
