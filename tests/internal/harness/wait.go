package harness

import (
	"os"
	"testing"
	"time"
)

// WaitUntil looks again and again at what another process changes: a file, its
// open descriptors, its children.
func WaitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// ReadFile returns what is in a file, nothing if it does not exist.
func ReadFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(data)
}
