package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup gives the process, and what it starts, a process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// endGroup kills the process group of a bridge, and so its server; mcp-bridge's server ends with it, whatever its group is.
func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// residentBytes returns the resident memory of a process and of its descendants but the server, in bytes.
func residentBytes(pid int) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == self {
		return 0, nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, nil // it has ended
	}
	kb, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0, err
	}
	sum := kb << 10
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				more, _ := residentBytes(n)
				sum += more
			}
		}
	}
	return sum, nil
}
