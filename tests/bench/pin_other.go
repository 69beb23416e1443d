//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func startOnOneCPU(*exec.Cmd) error { return errors.ErrUnsupported }
