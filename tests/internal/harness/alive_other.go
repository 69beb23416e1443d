//go:build !unix

package harness

import "os"

// Alive reports whether a process exists.
func Alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	p.Release()
	return true
}
