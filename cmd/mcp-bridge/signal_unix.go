//go:build unix

package main

import (
	"os"
	"syscall"
)

// levelSignal is what changes the level of the log while the program runs.
func levelSignal() os.Signal { return syscall.SIGUSR1 }
