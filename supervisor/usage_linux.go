package supervisor

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is what CPU time is counted in, in /proc: the kernel tells programs so everywhere.
const clockTick = time.Second / 100

// UsageOf returns what processes and their descendants use. One that has ended counts no more. ok is false where
// the system does not tell (it is Linux that does), and if none of the processes is there.
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

// childrenOf returns the children of a process, each of which belongs to the thread that has started it.
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
