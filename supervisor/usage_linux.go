package supervisor

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU time in /proc/PID/stat, the same on every Linux.
const clockTick = time.Second / 100

// UsageOf returns what the processes with these ids, and their descendants, use together. A process that has ended
// counts no more. ok is false if none of pids is there; on other systems than Linux it always is.
func UsageOf(pids ...int) (u Usage, ok bool) {
	seen := map[int]bool{}
	for len(pids) > 0 {
		pid := pids[0]
		pids = pids[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		text, err := statOf(pid)
		fields := strings.Fields(text)
		if err != nil || len(fields) < 22 {
			continue
		}
		number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
		u.CPU += time.Duration(number(11)+number(12)) * clockTick // utime and stime
		u.Resident += number(21) * int64(os.Getpagesize())        // rss
		ok = true
		pids = append(pids, childrenOf(pid)...)
	}
	return u, ok
}

// childrenOf returns the ids of a process's children; none if it has ended.
func childrenOf(pid int) (all []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads, _ := os.ReadDir(dir) // none: it has ended
	for _, t := range threads {
		list, _ := os.ReadFile(dir + t.Name() + "/children")
		for _, child := range strings.Fields(string(list)) {
			if n, err := strconv.Atoi(child); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}
