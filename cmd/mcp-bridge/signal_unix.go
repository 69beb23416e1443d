//go:build unix

package main

import (
	"os"
	"syscall"
)

// levelSignal returns the signal that changes the level of the log while the program runs: SIGUSR1. It is nil on systems without it.
func levelSignal() os.Signal { return syscall.SIGUSR1 }
