package metrics

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// ticks is how many there are in a second, in /proc: the kernel tells programs so everywhere.
const ticks = 100

// usage returns the memory in bytes and the CPU time in seconds that processes and their
// descendants have. One that has ended meanwhile counts no more.
func usage(pids []int) (memory, cpu float64, ok bool) {
	seen := map[int]bool{}
	for len(pids) > 0 {
		pid := pids[0]
		pids = pids[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		dir := "/proc/" + strconv.Itoa(pid)
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may hold anything; after it are the state and then numbers.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 22 {
			continue
		}
		number := func(i int) float64 { n, _ := strconv.ParseFloat(string(fields[i]), 64); return n }
		cpu += (number(11) + number(12)) / ticks         // utime and stime
		memory += number(21) * float64(os.Getpagesize()) // rss
		children, _ := os.ReadFile(dir + "/task/" + strconv.Itoa(pid) + "/children")
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return memory, cpu, true
}
