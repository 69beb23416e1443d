//go:build !unix

package main

import "os"

// levelSignal returns nil: on this system, no signal changes the level of the log while the program runs.
func levelSignal() os.Signal { return nil }
