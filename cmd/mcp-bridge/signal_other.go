//go:build !unix

package main

import "os"

// levelSignal is what changes the level of the log while the program runs: there is no such
// signal here.
func levelSignal() os.Signal { return nil }
