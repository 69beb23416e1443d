//go:build !unix

package main

import "os"

// stopWhenClosed does nothing here: what kind of stdin we have cannot be told
// reliably.
func stopWhenClosed(*os.File, func()) {}
