//go:build unix

package tests

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// processesGone reports whether none of the processes is there whose ids a
// fixture has noted in a file.
func processesGone(t testing.TB, file string) bool {
	t.Helper()
	for line := range strings.Lines(mustRead(t, file)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return false
		}
	}
	return true
}
