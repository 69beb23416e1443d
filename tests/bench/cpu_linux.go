package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	const sched = 2 // CPUCLOCK_SCHED: the clock of a process is its id, inverted, with this
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// childrenOf returns the processes that a process has started, with all that they have started.
func childrenOf(pid int) (all []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread that has ended has none
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			all = append(append(all, child), childrenOf(child)...)
		}
	}
	return all
}
