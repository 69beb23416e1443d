package main

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startOnOneCPU starts a program that has, with all that it starts, one CPU.
func startOnOneCPU(cmd *exec.Cmd) error {
	// A process has the CPUs of the thread that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	return cmd.Start()
}
