package command

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// listProcesses returns the processes of this machine, as /proc tells them.
func listProcesses() []systemProcess {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []systemProcess
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid pgrp ...; the name may contain anything.
		open, close := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if open < 0 || close < open {
			continue
		}
		rest := strings.Fields(string(stat[close+1:]))
		const state, parent, group, began = 0, 1, 2, 19
		if len(rest) <= began {
			continue
		}
		p := systemProcess{pid: pid, startTime: rest[began], name: string(stat[open+1 : close])}
		p.isZombie = rest[state] == "Z" || rest[state] == "X"
		p.parentPID, _ = strconv.Atoi(rest[parent])
		p.groupID, _ = strconv.Atoi(rest[group])
		all = append(all, p)
	}
	return all
}

// listeningPorts returns the TCP ports on which the processes pids listen, as /proc tells them.
func listeningPorts(pids []int) []int {
	sockets := map[string]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if to, err := os.Readlink(dir + e.Name()); err == nil {
				if inode, ok := strings.CutPrefix(to, "socket:["); ok {
					sockets[strings.TrimSuffix(inode, "]")] = true
				}
			}
		}
	}
	var ports []int
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table)
		for row := range strings.Lines(string(text)) {
			const address, state, inode, listen = 1, 3, 9, "0A"
			fields := strings.Fields(row)
			if len(fields) <= inode || fields[state] != listen || !sockets[fields[inode]] {
				continue
			}
			_, hex, _ := strings.Cut(fields[address], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
				ports = append(ports, int(port))
			}
		}
	}
	return ports
}
