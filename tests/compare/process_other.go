//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

// ownGroup does nothing here: there are no process groups.
func ownGroup(*exec.Cmd) {}

// endGroup kills the process alone: there are no process groups here.
func endGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// residentBytes returns an error: the memory of a process is measured on Linux only.
func residentBytes(int) (int, error) { return 0, errors.ErrUnsupported }
