//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

// startOnOneCPU returns errors.ErrUnsupported, and starts nothing.
func startOnOneCPU(*exec.Cmd) error { return errors.ErrUnsupported }
