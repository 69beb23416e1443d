//go:build !linux

package command

import (
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// listProcesses returns the processes of this machine, as ps tells them; none on Windows, which has no ps: there the job object ends
// what descends from a process with that process, and nothing can be left.
func listProcesses() []systemProcess {
	if runtime.GOOS == "windows" {
		return nil
	}
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,pgid=,stat=,lstart=,comm=").Output()
	if err != nil {
		return nil
	}
	var all []systemProcess
	for row := range strings.Lines(string(out)) {
		const pid, parent, group, state, began, name = 0, 1, 2, 3, 4, 9 // lstart is five words
		fields := strings.Fields(row)
		if len(fields) <= name {
			continue
		}
		p := systemProcess{startTime: strings.Join(fields[began:name], " "), name: strings.Join(fields[name:], " ")}
		p.isZombie = strings.HasPrefix(fields[state], "Z")
		p.pid, _ = strconv.Atoi(fields[pid])
		p.parentPID, _ = strconv.Atoi(fields[parent])
		p.groupID, _ = strconv.Atoi(fields[group])
		all = append(all, p)
	}
	return all
}

// listeningPorts returns the TCP ports on which the processes pids listen, as lsof tells them; none on Windows.
func listeningPorts(pids []int) []int {
	if runtime.GOOS == "windows" {
		return nil
	}
	list := make([]string, 0, len(pids))
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	out, err := exec.Command("lsof", "-nP", "-a", "-iTCP", "-sTCP:LISTEN", "-Fn", "-p", strings.Join(list, ",")).Output()
	if err != nil {
		return nil
	}
	var ports []int
	for row := range strings.Lines(string(out)) {
		if at := strings.LastIndexByte(row, ':'); row[0] == 'n' && at >= 0 {
			if port, err := strconv.Atoi(strings.TrimSpace(row[at+1:])); err == nil {
				ports = append(ports, port)
			}
		}
	}
	return ports
}
